"""Results as pages: a module for each section says how its figures are written, templates hold the text around them."""

"""Results as pages: a module for each section, which says how its figures are written."""

"""`lowtide.report` and the program `lowtide-report`: a step's memory as one page."""

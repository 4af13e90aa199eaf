"""Python imports it at its start, as its folder is in PYTHONPATH, in each process of a test."""

import coalesce_fits_imports
import coalesce_tests_process

coalesce_fits_imports.run_hidden()
coalesce_tests_process.start()

"""One file for each program; its functions `test_*(case)` are the tests."""

"""What is shipped: Debian packages, an image, manual pages, completions. tools/package calls these."""

"""The desk as a page in a browser, for people who do not program."""

"""The requests: a ledger of who asked for what to be forgotten, how it was done, and papers that show so."""

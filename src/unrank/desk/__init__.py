"""The requests: a ledger of what was asked to be forgotten and how that was done, and signed certificates."""

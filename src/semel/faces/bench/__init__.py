"""`semel bench`: what semel costs beside the raw floor of the same disk and the same minute (design 13)."""

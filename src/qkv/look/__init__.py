"""`qkv look`: what happens inside a model, as numbers (views) and as a page in the browser (server, page)."""

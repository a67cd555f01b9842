"""The page that looks inside a model: what is asked of it by name (api), over HTTP (server), and the page itself."""

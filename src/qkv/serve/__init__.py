"""One ASGI app on starlette and uvicorn: access control (access), requests and answers (app), the process (listen)."""

"""The playground: one static page to chat with the server and to see what the drafter does.

The page talks to the server as any other client does; nothing here generates text.
"""

from blockdraft.serving.playground.routes import playground_routes

__all__ = ["playground_routes"]

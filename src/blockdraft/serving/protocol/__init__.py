"""What clients send: pydantic models of request bodies, and the written lists of the rest.

It holds no answer and reads no socket.
"""

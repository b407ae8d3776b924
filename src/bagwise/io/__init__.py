"""Reading and writing: model files that never execute code."""

from bagwise.io.modelfile import SCHEMA_VERSION, read_state, write_state
from bagwise.io.state_codec import ModelFileError, register

__all__ = ["SCHEMA_VERSION", "ModelFileError", "read_state", "register", "write_state"]

"""Files: the model (TOML), the result (JSON), orders (CSV)."""

from ppopt.files.model import Change, ModelError, model_of, model_of_text, read_model, setting
from ppopt.files.model_tree import model_dict
from ppopt.files.result import ResultError, ResultFile, document, json_text, read_result, result_dict
from ppopt.files.text import FileError, read_text, write_text
from ppopt.named.model import Model

__all__ = [
    "Change",
    "FileError",
    "Model",
    "ModelError",
    "ResultError",
    "ResultFile",
    "document",
    "json_text",
    "model_dict",
    "model_of",
    "model_of_text",
    "read_model",
    "read_result",
    "read_text",
    "result_dict",
    "setting",
    "write_text",
]

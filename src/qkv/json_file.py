"""JSON files, read so that a fault names the file and the place in it."""

import json
from pathlib import Path
from typing import Any

from qkv.errors import InputError


def read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))  # Windows editors put a byte order mark first
    except FileNotFoundError:
        raise InputError(f"{file} is missing.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file} is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}. Copy it again."
        ) from None


def read_object(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise InputError(f"{file} holds a JSON {type(content).__name__}, where an object {{…}} belongs.")
    return content


def to_json(content: Any) -> str:
    """As people read it: indented, 汉字 as they are, ending in a newline."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

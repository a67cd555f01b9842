"""The English messages of the package, collected from its source: what the catalogue of text/messages.py must hold.

An f-string becomes a template: its text, and {0}, {1}, … for its expressions in order. An expression that is text
itself (a hint in a variable of the same function, a value of a table, what a function of the package returns) is
collected too, and its placeholder is marked, since the Chinese template has to translate it.

    PYTHONPATH=src python -m tests.support.message_templates

prints as JSON the templates that the catalogue lacks, by folder, with empty Chinese: fill them in.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "qkv"

SINKS = dict.fromkeys(("say", "write", "tell", "message", "fraction", "progress", "translate", "warn"), 0)
SINKS |= {
    "InputError": 0,
    "NoFieldError": 0,
    "RefusalError": 1,
    "UnknownQuestionError": 1,
    "Fault": 2,
    "Finding": 3,
    "JobKind": 0,
    "ScoreError": 0,
    "_OwnType": 0,
    "Chosen": 0,
    "refusal": 1,
}
"""Functions that are given a message, and where. The server's own refusals have codes, which its page translates."""
READERS = {"text/sentencepiece.py", "data/corpus/shards.py"}
"""Files whose ValueErrors are quoted in a message."""
METHODS = {"message", "refusal", "warn"}
"""Those that may be methods: a file too has `write` and `tell`."""
NOTES = {"notes", "limits", "lines", "said"}
"""Lists of messages: what is appended to them is shown."""
FACTS = re.compile(r"format_data|_?lines_of_\w+")
"""Functions that return tables of facts: a name and a text a row."""
DESCRIBES = re.compile(r"describe|lacks|explain_\w+|_reason_to_keep|settings|savings|too_large|rows_and_accumulation")
"""Functions and methods that return a message."""
TABLES = re.compile(r".*_FINDINGS|METRIC_NAMES|_?FIXED")
"""Tables with messages: their values, or the last of several."""
GRAMMAR = set("is are has have was were does do it them its their this these that those a an s es y ies".split()) | {""}
"""Endings and verbs that follow the number of a noun, which Chinese leaves out."""
NAMES = set("alignments arrow beams conll csv gzip lines marian mean nnlm openpyxl parquet pyarrow renormalise".split())
NAMES |= set("rnnlm sample stopping tsv unigram xlsx xz classify tag choice json jsonl qkv utf-16 windows-1252".split())
NAMES |= {"Windows-1252", "{0}, line {1}", "cls", "first", "mps", "cpu", "cuda"}
"""Names of options, programs and models that are chosen from in a message."""


@dataclass(frozen=True)
class Slot:
    """A placeholder: "value", "message" (translated), or "grammar" (may be left out)."""

    kind: str = "value"


Form = tuple[str | Slot, ...]
VALUE: Form = (Slot(),)
MESSAGE: Form = (Slot("message"),)


@dataclass
class Template:
    text: str
    marks: tuple[str, ...]
    places: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        parts = self.places[0].split(":")[0].split("/")
        return "/".join(parts[:-1]) or parts[0].removesuffix(".py")


def is_prose(text: str) -> bool:
    """Whether a text has words, beside commands, options and names in capitals.

    >>> is_prose("--model FOLDER"), is_prose("qkv check {0}"), is_prose(", longest {0}")
    (False, False, True)
    """
    bare = re.sub(r"\{\d+\}", "…", text).strip()
    if re.fullmatch(r"(--?[\w-]+ \S+\s*)+", bare) and not bare.endswith("."):
        return False
    if re.match(r"…?(qkv|export|cat|pip|iconv) ", bare) and not re.search(r" {3,}\S", bare):
        return False
    words = re.findall(r"(?<![\w./<\-\[{`_=])[A-Za-z][a-z'’]+(?![\w_=(\[]|/(?!s$)|\.[\w…])", bare)
    return any(word for word in words)


class Module:
    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(SOURCE).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [self.tree]
        for node in self.nodes:  # grows
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                self.nodes.append(child)
        self.functions = {
            node.name: node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.constants = dict(_assignments(self.tree.body))
        self.imported = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        here: ast.AST | None = self.parents.get(node)
        while here is not None and not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef):
            here = self.parents.get(here)
        return here


def _assignments(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


class Collector:
    def __init__(self, folder: Path = SOURCE) -> None:
        self.modules = {
            ".".join(["qkv", *path.relative_to(SOURCE).with_suffix("").parts]): Module(path)
            for path in sorted(folder.rglob("*.py"))
        }
        self.templates: dict[str, Template] = {}
        self.augmented: list[str] = []
        self.known: dict[ast.expr, list[Form]] = {}
        self.bound: dict[ast.AST, dict[str, list[tuple[str, ast.expr]]]] = {}
        self.calls: dict[str, list[tuple[Module, ast.Call]]] = defaultdict(list)
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.Call):
                    self.calls[_called(node)].append((module, node))
        for module in self.modules.values():
            self._collect(module)

    # Where messages are.

    def _collect(self, module: Module) -> None:
        for node in module.nodes:
            if isinstance(node, ast.Call):
                for message in self._messages(module, node):
                    self.add(module, message)
            elif isinstance(node, ast.keyword | ast.Assign | ast.AugAssign):
                for message in _listed(module, node):
                    self.add(module, message)
            elif isinstance(node, ast.FunctionDef) and FACTS.fullmatch(node.name):
                for message in self._rows(module, node):
                    self.add(module, message)
            elif isinstance(node, ast.FunctionDef) and DESCRIBES.fullmatch(node.name) and _returns_text(node):
                for message in self._returned(module, node):
                    self.add(module, message)
        for name, value in module.constants.items():
            if TABLES.fullmatch(name) and isinstance(value, ast.Dict):
                for one in value.values:
                    self.add(module, one.elts[-1] if isinstance(one, ast.Tuple) else one)
        if module.name == "cli/main.py":
            self._verbs(module)

    def _messages(self, module: Module, call: ast.Call) -> Iterator[ast.expr]:
        name = _called(call)
        keywords = {word.arg: word.value for word in call.keywords}
        terminal = name not in ("say", "write") or module.name.startswith("cli/")
        if name in SINKS and terminal and (isinstance(call.func, ast.Name) or name in METHODS):
            place = SINKS[name]
            if len(call.args) > place:
                yield call.args[place]
            elif "message" in keywords:
                yield keywords["message"]
        elif name == "ValueError" and module.name in READERS:
            yield call.args[0]
        elif name in ("Option", "Argument", "Typer") and "help" in keywords:
            yield keywords["help"]
        elif name == "append" and isinstance(call.func, ast.Attribute) and _last(call.func.value) in NOTES:
            yield call.args[0]
        elif name == "print_table" and isinstance(call.args[0], ast.List):
            yield from call.args[0].elts
        elif name == "print_facts" and (function := module.function_of(call)) is not None:
            yield from self._rows(module, function)
        elif name == "Ability":
            yield call.args[1]
            yield from (one for one in [*call.args[3:], *keywords.values()] if isinstance(one, ast.Constant))
        elif name == "Pretraining":
            yield from (keywords[word] for word in ("model", "report") if word in keywords)
        elif name == "Phrase" and module.name.startswith("models/") and _is_noun(call.args[0]):
            yield call.args[0]

    def _rows(self, module: Module, function: ast.AST) -> Iterator[ast.expr]:
        """Both sides of the pairs in a function."""
        for node in ast.walk(function):
            inside = isinstance(module.parents.get(node), ast.Subscript | ast.Tuple)
            if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2 and not inside:
                yield from node.elts

    def _verbs(self, module: Module) -> None:
        table = module.constants["VERBS"]
        assert isinstance(table, ast.Dict)
        for value in table.values:
            assert isinstance(value, ast.Tuple)
            self.add(module, value.elts[1])
            assert isinstance(value.elts[0], ast.Name)
            self._docstring(*self._imported_function(module, value.elts[0].id))
        self._paragraphs(ast.literal_eval(module.constants["HELP"]), "cli/main.py:1")
        for other in self.modules.values():
            for function in other.functions.values():
                for decorator in function.decorator_list:
                    called = _called(decorator) if isinstance(decorator, ast.Call) else ""
                    if called in ("command", "callback") and other.name.startswith("cli/"):
                        self._docstring(other, function)

    def _imported_function(self, module: Module, name: str) -> tuple[Module, ast.AST]:
        source, original = module.imported[name]
        return self.modules[source], self.modules[source].functions[original]

    def _docstring(self, module: Module, function: ast.AST) -> None:
        assert isinstance(function, ast.FunctionDef)
        self._paragraphs(ast.get_docstring(function) or "", f"{module.name}:{function.lineno}")

    def _paragraphs(self, text: str, place: str) -> None:
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            for unit in help_units(paragraph):
                self._register((unit,), place)

    # What they say.

    def add(self, module: Module, expression: ast.expr) -> None:
        for form in self.forms(module, expression, 0):
            if len(form) == 1 and isinstance(form[0], str):
                form = _formatted(form[0])
            self._register(form, f"{module.name}:{expression.lineno}")

    def _register(self, form: Form, place: str) -> bool:
        """Add a template, line by line; returns whether it has words."""
        lines: list[list[str | Slot]] = [[]]
        for part in form:
            if isinstance(part, Slot):
                lines[-1].append(part)
                continue
            first, *rest = part.split("\n")
            lines[-1].append(first)
            lines += [[one] for one in rest]
        found = False
        for line in lines:
            text, marks = "", []
            for part in line:
                if isinstance(part, Slot):
                    quoted = text.endswith(("'", "“", "`"))
                    marks.append("value" if quoted else part.kind)
                    text += f"{{{len(marks) - 1}}}"
                else:
                    text += part
            text = re.sub(r"^(error|note|warning): ", "", text.strip())  # which are translated apart
            if " / " in text and re.search("[\u4e00-\u9fff]", text) and place.startswith("models/"):
                continue  # of a model card, in both languages
            if is_prose(text) and text not in GRAMMAR | NAMES:
                found = True
                entry = self.templates.setdefault(text, Template(text, tuple(marks)))
                if place not in entry.places:
                    entry.places.append(place)
                kinds = [
                    "message" if "message" in pair else "value" if "value" in pair else "grammar"
                    for pair in zip(entry.marks, marks, strict=True)
                ]
                entry.marks = tuple(kinds)
        return found

    def _slot(self, module: Module, expression: ast.expr, depth: int) -> Slot:
        forms = self.forms(module, expression, depth + 1)
        if any(form == MESSAGE for form in forms):
            kind = "message"
        elif any(form != ("",) for form in forms) and all(len(form) == 1 and form[0] in GRAMMAR for form in forms):
            return Slot("grammar")
        else:
            kind = "value"
        for form in forms:
            if form in (VALUE, MESSAGE):
                continue
            registered = self._register(form, f"{module.name}:{expression.lineno}")
            if registered or Slot("message") in form:
                kind = "message"
        return Slot(kind)

    def forms(self, module: Module, node: ast.expr, depth: int) -> list[Form]:
        """The texts that an expression may have; [] where it is any value."""
        if depth > 100:
            return []
        if node not in self.known:
            self.known[node] = []  # while it is looked at: an expression that leads back to itself
            self.known[node] = self._forms(module, node, depth)
        return self.known[node]

    def _forms(self, module: Module, node: ast.expr, depth: int) -> list[Form]:
        match node:
            case ast.Constant(value=str(text)):
                return [(text,)]
            case ast.JoinedStr(values=values):
                parts: list[str | Slot] = []
                for value in values:
                    if isinstance(value, ast.Constant):
                        parts.append(str(value.value))
                    elif isinstance(value, ast.FormattedValue):
                        plain = value.conversion == -1 and value.format_spec is None
                        parts.append(self._slot(module, value.value, depth) if plain else Slot())
                return [tuple(parts)]
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                sides: list[str | Slot] = []
                for side in (left, right):
                    forms = self.forms(module, side, depth + 1)
                    if len(forms) == 1:
                        sides += forms[0]
                    elif _is_number(side):
                        return []
                    else:
                        sides.append(self._slot(module, side, depth))
                return [tuple(sides)] if any(isinstance(one, str) for one in sides) else []
            case ast.IfExp(body=body, orelse=orelse):
                return self.forms(module, body, depth + 1) + self.forms(module, orelse, depth + 1)
            case ast.BoolOp(values=options):
                return [form for one in options for form in self.forms(module, one, depth + 1)]
            case ast.NamedExpr(value=value):
                return self.forms(module, value, depth + 1)
            case ast.Name(id=name):
                return self._name(module, node, name, depth)
            case ast.Attribute(attr="message" | "en" | "what" | "words"):
                return [MESSAGE]
            case ast.Subscript(value=table):
                return self._table(module, table, depth)
            case ast.Call():
                return self._call(module, node, depth)
        return []

    def _table(self, module: Module, table: ast.expr, depth: int) -> list[Form]:
        if isinstance(table, ast.Name):
            home, value = self._constant(module, table.id)
            local = module.function_of(table)
            if value is None and local is not None:
                value = dict(_assignments([one for one in ast.walk(local) if isinstance(one, ast.stmt)])).get(table.id)
            if isinstance(value, ast.Dict):
                return [form for one in value.values for form in self.forms(home, one, depth + 1)]
        elif isinstance(table, ast.Dict):
            return [form for one in table.values for form in self.forms(module, one, depth + 1)]
        return []

    def _constant(self, module: Module, name: str) -> tuple[Module, ast.expr | None]:
        if name in module.constants:
            return module, module.constants[name]
        if name in module.imported:
            source, original = module.imported[name]
            home = self.modules.get(source)
            if home is not None:
                return home, home.constants.get(original)
        return module, None

    def _name(self, module: Module, node: ast.expr, name: str, depth: int) -> list[Form]:
        function = module.function_of(node)
        found: list[Form] = []
        while function is not None:  # outwards
            if function not in self.bound:
                self.bound[function] = _bindings(function)
            here = self.bound[function].get(name, [])
            for kind, value in here:
                if kind == "error":
                    return [MESSAGE]
                if kind == "augmented":
                    self.augmented.append(f"{module.name}:{value.lineno}")
                forms = self.forms(module, value, depth + 1)
                found += [form for form in forms if kind != "looped" or not _is_name(form)]
            if here:
                return found
            words = function.args
            names = [one.arg for one in (*words.posonlyargs, *words.args, *words.kwonlyargs)]
            if name in names:
                return self._given(module, function, name, names, depth)
            function = module.function_of(function)
        home, constant = self._constant(module, name)
        forms = self.forms(home, constant, depth + 1) if constant is not None else []
        return [form for form in forms if not _is_name(form)]

    def _given(
        self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, names: list[str], depth: int
    ) -> list[Form]:
        """The texts that callers give for a parameter; single words are names of things."""
        place = names.index(name) - (1 if names[0] in ("self", "cls") else 0)
        found: list[Form] = []
        for other, call in self.calls.get(function.name, ()):
            method = isinstance(call.func, ast.Attribute)
            if method != (names[0] in ("self", "cls")) or (other is not module and function.name not in other.imported):
                continue
            words = {word.arg: word.value for word in call.keywords}
            value = words.get(name, call.args[place] if 0 <= place < len(call.args) else None)
            if value is None or isinstance(value, ast.Starred):
                continue
            for form in self.forms(other, value, depth + 2):
                if not _is_name(form):
                    found.append(form)
        return found

    def _call(self, module: Module, call: ast.Call, depth: int) -> list[Form]:
        name = _called(call)
        if name == "translate":
            return []
        if name == "str" and call.args:
            return self.forms(module, call.args[0], depth + 1)
        if isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if DESCRIBES.fullmatch(name):
                return [MESSAGE]
            if name == "join" and isinstance(owner, ast.Constant) and call.args:
                return self._joined(module, call.args[0], depth)
            if name in ("strip", "rstrip", "lstrip", "replace", "lower", "capitalize"):
                return self.forms(module, owner, depth + 1)
            if name == "get":
                return self._table(module, owner, depth)
            if name in ("format", "format_map"):
                if self.forms(module, owner, depth + 1) == [MESSAGE]:
                    return [MESSAGE]
                texts = [form[0] for form in self.forms(module, owner, depth + 1) if len(form) == 1]
                return [_formatted(text) for text in texts if isinstance(text, str)]
            if not (isinstance(owner, ast.Name) and owner.id == "self"):
                return []
        home, function = module, module.functions.get(name)
        if function is None and name in module.imported:
            source, original = module.imported[name]
            if source in self.modules:
                home, function = self.modules[source], self.modules[source].functions.get(original)
        if function is None or not _returns_text(function):
            return []
        return [form for value in self._returned(home, function) for form in self.forms(home, value, depth + 1)]

    def _returned(self, module: Module, function: ast.AST) -> Iterator[ast.expr]:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None and module.function_of(node) is function:
                yield node.value

    def _joined(self, module: Module, parts: ast.expr, depth: int) -> list[Form]:
        if isinstance(parts, ast.GeneratorExp | ast.ListComp):
            return self.forms(module, parts.elt, depth + 1)
        if isinstance(parts, ast.List | ast.Tuple):
            return [form for one in parts.elts for form in self.forms(module, one, depth + 1)]
        return []


def help_units(paragraph: str) -> list[str]:
    """What is translated at once: a paragraph of running text as one line, or every line of a block (after \\b)."""
    if "\b" in paragraph:
        return [line.strip() for line in paragraph.replace("\b", "").split("\n") if line.strip()]
    return [" ".join(paragraph.split())]


def _formatted(text: str) -> Form:
    """
    >>> _formatted("{} of {name:,}")
    (Slot(kind='value'), ' of ', Slot(kind='value'))
    """
    pieces: list[str | Slot] = []
    for number, piece in enumerate(re.split(r"(\{[^{}]*\})", text)):
        if piece:
            pieces.append(Slot() if number % 2 else piece)
    return tuple(pieces)


def _bindings(function: ast.AST) -> dict[str, list[tuple[str, ast.expr]]]:
    """The expressions that the names of a function stand for."""
    found: dict[str, list[tuple[str, ast.expr]]] = defaultdict(list)

    def bind(target: ast.expr, value: ast.expr, kind: str = "assigned") -> None:
        if isinstance(target, ast.Name):
            found[target.id].append((kind, value))
        elif isinstance(target, ast.Tuple):
            sides = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            for side in sides:
                if isinstance(side, ast.Tuple):
                    for one, given in zip(target.elts, side.elts, strict=False):
                        bind(one, given, kind)

    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                bind(target, value)
            case ast.NamedExpr(target=target, value=value):
                bind(target, value)
            case ast.AugAssign(target=target, value=value):
                bind(target, value, "augmented")
            case ast.For(target=target, iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                for item in items:
                    bind(target, item, "looped")
            case ast.comprehension(target=target, iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                for item in items:
                    bind(target, item, "looped")
            case ast.ExceptHandler(name=str(name), type=ast.expr() as kind) if "InputError" in ast.unparse(kind):
                found[name].append(("error", kind))
    return found


def _returns_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns) in ("str", "str | None")


def _listed(module: Module, node: ast.keyword | ast.Assign | ast.AugAssign) -> list[ast.expr]:
    """The messages of notes=(…), lines = […] and notes += […]; `lines` of the terminal only."""
    if isinstance(node, ast.keyword):
        name = node.arg or ""
    else:
        name = _last(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    if name in ("about", "formats") and module.name == "data/labelled/reader.py":
        return [node.value]
    terminal = name != "lines" or module.name.startswith("cli/")
    value = node.value
    return value.elts if name in NOTES and terminal and isinstance(value, ast.Tuple | ast.List) else []


def _is_noun(node: ast.expr) -> bool:
    """Whether a phrase says what a model is: "a BERT", which messages quote."""
    return isinstance(node, ast.Constant) and bool(re.match("an? |word vectors", str(node.value)))


def _is_name(form: Form) -> bool:
    """Whether a text is one word: the name of a setting or a file, when it is in a list or an argument."""
    return len(form) == 1 and isinstance(form[0], str) and " " not in form[0].strip()


def _called(call: ast.Call) -> str:
    return _last(call.func)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def missing(templates: dict[str, Template], catalogue: dict[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for text, template in templates.items():
        if text not in catalogue:
            found[template.folder][text] = ""
    return dict(sorted(found.items()))


if __name__ == "__main__":
    from qkv.text.messages import catalogue

    print(json.dumps(missing(Collector().templates, catalogue()), ensure_ascii=False, indent=1))

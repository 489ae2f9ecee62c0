"""`grep` and `find_files` give the model what nanobot's own tools give it.

The reference runs in its own interpreter, ``NBTOOLS_REFERENCE_PYTHON``, by default ``.venvs/reference``;
without it the comparisons are skipped. Intended differences: docs/decisions/0003-native-search.md.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nanobot_tools import _native

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ.get("NBTOOLS_REFERENCE_PYTHON", ROOT / ".venvs/reference/bin/python"))

Result = tuple[str, bool]
Policy = dict[str, Any]


def native_tool(tool: str, policy: Policy) -> _native.NativeTool:
    make = {"grep": _native.grep_tool, "find_files": _native.find_files_tool}[tool]
    return make(
        workspace=policy.get("workspace"),
        allowed_dir=policy.get("allowed_dir"),
        extra_allowed_dirs=policy.get("extra_read_allowed_dirs", []),
        extra_allowed_files=policy.get("extra_read_allowed_files", []),
        restrict_to_workspace=policy.get("restrict_to_workspace"),
    )


def native(tool: str, policy: Policy, **args: Any) -> Result:
    return native_tool(tool, policy).run_blocking(json.dumps(args))


class Reference:
    """nanobot's tools in their own process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [str(REFERENCE), "-W", "ignore", str(Path(__file__).with_name("reference_search.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request, default=str) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __call__(self, tool: str, policy: Policy, **args: Any) -> Result:
        reply = self.ask({"tool": tool, "policy": policy, "args": args})
        return reply["text"], reply["is_error"]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def write_tree(root: Path) -> None:
    """A tree with what real ones hold and what they should not."""
    texts = {
        "README.md": "# Title\n\nhello world\nTODO: more\n",
        "src/main.py": "import os\n\n\ndef main():\n    # TODO hello\n    return os.getcwd()\n" * 4,
        "src/util.pyi": "def hello() -> None: ...\n",
        "src/deep/er/and/deeper/x.rs": 'fn main() { println!("hello"); }\n',
        "src/app.TS": "const hello = 1;\n",
        "src/style.scss": ".hello { }\n",
        "docs/guide.md": "".join(f"line {i} {'hello' if i % 7 == 0 else ''}\n" for i in range(200)),
        "crlf.txt": "one\r\nhello\r\n\r\nthree hello\r\nfour",
        "mixed.txt": "a\rb\x0bhello\x0cd\x1ce\x85hello\u2028x\u2029hello\r\n\n\r\r\nend hello",
        "unicode-日本.txt": "日本hello\nÄÖÜ hello ß\n日本語\nnaïve café ﬁ\nhello\u00a0there\n",
        "long.txt": f"{'x' * 5000}hello{'é' * 5000}\nhello{'y' * 3000}\n{'ü' * 2001}hello\n",
        "empty.txt": "",
        "no-newline": "hello",
        "blank-lines.txt": "\n\n\nhello\n\n\n",
        "bom.txt": "\ufeffhello bom\n",
        "controls.txt": "hello \x01\x02 fine because there is much more text than controls\n",
        "tabs.txt": "\thello\t1\n  hello 2\n",
        "names/[odd].txt": "hello odd\n",
        "names/a b.txt": "hello blank\n",
        "names/.hidden": "hello hidden\n",
        "names/UPPER.PY": "HELLO = 1\n",
        "names/x.tar.gz.txt": "hello dots\n",
        "names/'quoted'.txt": "hello quotes\n",
        "names/curly{a,b}.txt": "hello curly\n",
        "names/^caret": "hello caret\n",
        "names/!bang": "hello bang\n",
        "node_modules/dep/index.js": "hello ignored\n",
        "src/build/out.py": "hello ignored\n",
        "a.d/z.txt": "hello z\n",
        "a-b.txt": "hello dash\n",
        "a/a.txt": "hello a\n",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (root / "binary.bin").write_bytes(b"hello\x00world")
    (root / "mostly-control.dat").write_bytes(b"hello" + b"\x01" * 10)
    (root / "latin1.txt").write_bytes("hello caf\xe9\n".encode("latin-1"))
    (root / "big.log").write_bytes(b"hello big\n" * 200_100)
    (root / "fits.log").write_bytes((b"x" * 99 + b"\n") * 19_999 + b"hello\n")
    (root / "empty-dir").mkdir()
    os.symlink("README.md", root / "link-to-file")
    os.symlink("src", root / "link-to-dir")
    os.symlink("nowhere", root / "broken")
    os.symlink("loop", root / "loop")
    os.symlink("..", root / "src/up")
    for index, path in enumerate(sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())):
        # Groups of equal times, so that ties are tested as well.
        stamp = 1_700_000_000 + (index * 7919 % 5) * 100
        os.utime(path, (stamp, stamp))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("native").resolve()
    root = base / "work"
    root.mkdir()
    write_tree(root)
    (base / "outside").mkdir()
    (base / "outside/secret.txt").write_text("hello secret\n")
    (base / "outside/other.txt").write_text("hello other\n")
    os.symlink(base / "outside", root / "names/link-outside")
    (base / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(base / "home"))
        yield root


@pytest.fixture(scope="module")
def reference(tree: Path) -> Iterator[Reference]:
    if not REFERENCE.exists():
        pytest.skip("the reference's interpreter is not installed")
    process = Reference()
    yield process
    process.close()


Same = Callable[..., Result]


@pytest.fixture(scope="module")
def same(tree: Path, reference: Reference) -> Same:
    """Call both tools and require the same result."""

    def check(tool: str, policy: Policy | None = None, **args: Any) -> Result:
        policy = {"workspace": tree} if policy is None else policy
        ours = native(tool, policy, **args)
        assert ours == reference(tool, policy, **args)
        return ours

    return check


GREPS: list[dict[str, Any]] = [
    {"pattern": "hello"},
    {"pattern": "HELLO", "case_insensitive": True},
    {"pattern": "hello", "output_mode": "files_with_matches"},
    {"pattern": "hello", "output_mode": "count"},
    {"pattern": "hello", "output_mode": "count", "head_limit": 3},
    {"pattern": "hello", "output_mode": "count", "head_limit": 3, "offset": 4},
    {"pattern": "hello", "output_mode": "files_with_matches", "offset": 2},
    {"pattern": "hello", "output_mode": "files_with_matches", "offset": 2000},
    {"pattern": "hello", "output_mode": "files_with_matches", "head_limit": 0},
    {"pattern": "hello", "head_limit": 1},
    {"pattern": "hello", "head_limit": 4, "offset": 3},
    {"pattern": "hello", "head_limit": 0, "glob": "docs/**"},
    {"pattern": "hello", "offset": 5},
    {"pattern": "hello", "offset": 500},
    {"pattern": "hello", "max_matches": 2},
    {"pattern": "hello", "output_mode": "count", "max_results": 2, "max_matches": 1},
    {"pattern": "hello", "context_before": 0, "context_after": 0},
    {"pattern": "hello", "context_before": 20, "context_after": 20, "glob": "*.md"},
    {"pattern": "hello", "context_before": 1, "context_after": 0, "path": "mixed.txt"},
    {"pattern": "line", "path": "docs", "head_limit": 300},
    {"pattern": "x+", "path": "fits.log", "head_limit": 0},
    {"pattern": "hello", "path": "big.log", "head_limit": 3},
    {"pattern": "hello", "path": "big.log", "output_mode": "count"},
    {"pattern": "hello", "path": "big.log", "head_limit": 1000, "offset": 99_000},
    {"pattern": "hello", "path": "long.txt"},
    {"pattern": "y", "path": "long.txt"},
    {"pattern": "é$", "path": "long.txt"},
    {"pattern": "", "path": "mixed.txt"},
    {"pattern": "^$"},
    {"pattern": "^", "glob": "*.txt", "output_mode": "count"},
    {"pattern": "$", "glob": "*.txt", "output_mode": "count"},
    {"pattern": "\\s$", "output_mode": "count"},
    {"pattern": "\\bhello\\b", "output_mode": "count"},
    {"pattern": "(?i)hello|todo", "output_mode": "count"},
    {"pattern": "h.llo", "type": "py"},
    {"pattern": "h[^a-d]llo", "type": "PY "},
    {"pattern": "hello", "type": "js"},
    {"pattern": "hello", "type": "txt", "output_mode": "files_with_matches"},
    {"pattern": "hello", "type": " ", "output_mode": "count"},
    {"pattern": "(hel+)o.*\\1", "output_mode": "count"},
    {"pattern": "(?<=three )hello"},
    {"pattern": "hello(?! world)", "output_mode": "count"},
    {"pattern": "(?P<w>l)(?P=w)o\\Z", "output_mode": "count"},
    {"pattern": "\\Ahello", "output_mode": "count"},
    {"pattern": "(?x) hel lo # comment", "output_mode": "count"},
    {"pattern": "h{1}el{2,}o{0,1}", "output_mode": "count"},
    {"pattern": "[\\w.]+\\(\\)"},
    {"pattern": 'println!("', "fixed_strings": True},
    {"pattern": "HELLO.", "fixed_strings": True, "case_insensitive": True},
    {"pattern": "os.getcwd()", "fixed_strings": True, "output_mode": "count"},
    {"pattern": "hello\n", "fixed_strings": True},
    {"pattern": "hello\\n"},
    {"pattern": "日本語"},
    {"pattern": "äöü", "case_insensitive": True},
    {"pattern": "\\ufeffhello"},
    {"pattern": "nothing at all"},
    {"pattern": "hello", "path": "nowhere"},
    {"pattern": "hello", "path": ""},
    {"pattern": "hello", "path": "empty-dir"},
    {"pattern": "hello", "path": "empty.txt"},
    {"pattern": "hello", "path": "binary.bin"},
    {"pattern": "hello", "path": "latin1.txt"},
    {"pattern": "hello", "path": "link-to-file"},
    {"pattern": "hello", "path": "link-to-dir"},
    {"pattern": "hello", "path": "src/up/a"},
    {"pattern": "hello", "path": "loop"},
    {"pattern": "hello", "path": "broken"},
    {"pattern": "hello", "path": "a.txt/x"},
    {"pattern": "hello", "path": "/dev/null"},
    {"pattern": "hello", "path": "a\0b"},
    {"pattern": "hello", "path": "~nobody-here/x"},
    {"pattern": "hello", "path": "~"},
    {"pattern": "hello", "path": "y" * 300},
    {"pattern": "hello", "path": "./a//../a/./a.txt"},
    {"pattern": "hello", "path": "../outside"},
    {"pattern": "hello", "glob": "./"},
    {"pattern": "hello", "glob": "  "},
    {"pattern": "hello", "pages": "1-2", "path": "a"},
]


@pytest.mark.parametrize("args", GREPS, ids=lambda args: json.dumps(args)[:80])
def test_grep_says_what_the_reference_says(same: Same, args: dict[str, Any]) -> None:
    same("grep", **args)


FINDS: list[dict[str, Any]] = [
    {},
    {"head_limit": 5},
    {"head_limit": 5, "offset": 5},
    {"head_limit": 0, "offset": 3},
    {"offset": 1000},
    {"include_dirs": True},
    {"include_dirs": True, "type": "py"},
    {"include_dirs": True, "query": "a"},
    {"include_dirs": True, "path": "src", "sort": "modified", "glob": "*.py"},
    {"sort": "modified"},
    {"sort": "modified", "head_limit": 4, "offset": 2},
    {"sort": "modified", "head_limit": 0},
    {"sort": "size"},
    {"query": "SRC main"},
    {"query": "日本"},
    {"query": "  "},
    {"type": "py"},
    {"type": "yaml"},
    {"type": "gz.*"},
    {"path": "src"},
    {"path": "src/main.py"},
    {"path": "src/main.py", "include_dirs": True, "sort": "modified"},
    {"path": "nowhere"},
    {"path": "link-to-dir", "include_dirs": True},
    {"path": "empty-dir"},
    {"path": "empty-dir", "include_dirs": True},
    {"path": "/dev/null"},
    {"path": "loop"},
    {"path": "../outside"},
    {"path": "~"},
    {"glob": "./"},
    {"glob": "/etc/*"},
    {"glob": "src\\*.py"},
]
GLOBS = [
    *(
        "*.py",
        "*.PY",
        "src/*.py",
        "src/**/*.rs",
        "**/*.md",
        "**",
        "**/",
        "*",
        "?",
        "a*",
        "[a-c]*",
        "[!a-c]*",
        "[^a]*",
    ),
    *(
        "[",
        "[]",
        "[!]",
        "[]]*",
        "[[]*",
        "*{a,b}*",
        "{README,x}.*",
        "**.py",
        "**/deep*/**",
        "src/**",
        "../*",
        "./*",
    ),
    *(
        "*/*.txt",
        "names/[[]odd].txt",
        "[z-a]*",
        "[!z-a]*",
        "[a-]*",
        "*.t[xy]t",
        "*[",
        "a\\b",
        " *.md ",
        "**/**/x.rs",
    ),
    *("names/.h*", ".*", "*.", "[c-ab]*", "er/and/**/x.rs", "//x", "a//a.txt", "**/a/**", "a/**/a.txt"),
]


@pytest.mark.parametrize(
    "args", [*FINDS, *({"glob": glob} for glob in GLOBS)], ids=lambda args: json.dumps(args)[:80]
)
def test_find_files_says_what_the_reference_says(same: Same, args: dict[str, Any]) -> None:
    same("find_files", **args)


@pytest.mark.parametrize("glob", GLOBS)
def test_grep_filters_as_the_reference_does(same: Same, glob: str) -> None:
    same("grep", pattern="hello", output_mode="files_with_matches", glob=glob, head_limit=0)


INVALID = [
    *("a(", "a)", "[a", "[", "[]", "[^", "*a", "a**", "a{2}{3}", "^*", "\\b+", "a|*", "(?:*)", "a{3,2}"),
    *(
        "\\p",
        "\\8",
        "(a)\\2",
        "(\\1)",
        "\\400",
        "\\xg",
        "\\u12",
        "\\U0011ffff",
        "\\",
        "a\\",
        "[\\",
        "[a\\",
        "[\\q]",
        "(\\",
    ),
    *(
        "(?",
        "(?P",
        "(?P<",
        "(?P<a",
        "(?P<>x)",
        "(?P<1>x)",
        "(?P<a>x)(?P<a>y)",
        "(?P=a)",
        "(?P=",
        "(?Pz)",
        "(?P<a>(?P=a))",
    ),
    *(
        "(?#",
        "(?<=(a)\\1)",
        "(?<=(?(1)a))",
        "(?<",
        "(?<a",
        "(?<x>a)",
        "(?=a",
        "(?(",
        "(?(0)a)",
        "(?(9)a)",
        "(?(x)a)",
        "(?(a-b)c)",
        "(a)(?(1)b|c|d)",
    ),
    *(
        "(?i",
        "(?i-",
        "(?i-i:a)",
        "(?-",
        "(?-:a)",
        "(?iq)",
        "(?i:",
        "x(?i)",
        "(?L)a",
        "(?au)a",
        "(?-a:b)",
        "(?z)",
        "(?i1)",
    ),
    *("[b-a]", "[\\d-z]", "[a-\\w]", "\n\n(", "(?x) (", "a\n[b-a]", "(a)(?(1)b", "(?>a", "[z-\\x41]"),
]


@pytest.mark.parametrize("pattern", INVALID)
def test_an_invalid_pattern_is_explained_in_pythons_words(same: Same, pattern: str) -> None:
    text, is_error = same("grep", pattern=pattern, path="a")
    assert is_error
    assert text.startswith("Error")


def test_the_boundary_is_kept_and_explained(same: Same, tree: Path) -> None:
    outside = tree.parent / "outside"
    policies: list[Policy] = [
        {"workspace": tree, "allowed_dir": tree},
        {"workspace": tree, "restrict_to_workspace": True},
        {"workspace": tree, "allowed_dir": tree / "src"},
        {"workspace": tree, "allowed_dir": tree, "restrict_to_workspace": False},
        {"workspace": tree / "src", "allowed_dir": tree},
        {"workspace": tree / "link-to-dir", "allowed_dir": tree / "src"},
        {"workspace": tree, "allowed_dir": tree, "extra_read_allowed_dirs": [outside]},
        {"workspace": tree, "allowed_dir": tree, "extra_read_allowed_files": [outside / "secret.txt"]},
        {"workspace": tree, "extra_read_allowed_files": [outside / "secret.txt"]},
        {},
    ]
    paths = [
        *(
            "a",
            "../outside",
            "../outside/secret.txt",
            "names/link-outside",
            "names/link-outside/secret.txt",
            "/etc",
        ),
        *(
            str(outside / "secret.txt"),
            str(outside / "other.txt"),
            str(tree / "a"),
            "~",
            "..",
            "../work",
            "../workshop",
        ),
        *("src/up/../../outside", "/nowhere/at/all", "src/../../outside/../work/a"),
    ]
    for policy in policies:
        for path in paths:
            if policy or path.startswith("/"):
                same("grep", policy, pattern="hello secret|hello a", path=path)
                same("find_files", policy, path=path, glob="*.txt", head_limit=7)


def test_a_page_of_matches_ends_where_the_size_ends(same: Same) -> None:
    text, _ = same("grep", pattern="x", path="fits.log", head_limit=0, context_before=0, context_after=0)
    assert text.endswith("to continue)")


WORDS = st.text("abh.*+?()[]{}|^$\\lo-!x1 ,\n\u00e9dswbDSWAZ<>=:#P", min_size=1, max_size=8)
COMMON = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@COMMON
@given(glob=st.text("ab*?[]!-^/.\\ {},xt\u00e9", min_size=1, max_size=9))
def test_any_glob_means_what_it_means_in_the_reference(same: Same, glob: str) -> None:
    same("find_files", glob=glob, path="names")
    same("find_files", glob=glob, include_dirs=True, head_limit=0)


@COMMON
@given(pattern=WORDS)
def test_any_pattern_means_what_it_means_in_the_reference(
    tree: Path, reference: Reference, pattern: str
) -> None:
    # Python gives these a meaning of its own, see the decision record.
    if "\\B" in pattern:
        return
    for path in ("mixed.txt", "crlf.txt", "src/main.py", "unicode-日本.txt"):
        args = {"pattern": pattern, "path": path, "context_before": 1, "context_after": 1}
        ours = native("grep", {"workspace": tree}, **args)
        theirs = reference("grep", {"workspace": tree}, **args)
        if "look-behind requires fixed-width" in theirs[0]:
            continue
        assert ours == theirs


ATOMS = st.one_of(
    st.sampled_from("helo a.^$é本\t"),
    st.sampled_from(["\\w", "\\W", "\\s", "\\S", "\\d", "\\b", "\\A", "\\Z", "[a-h]", "[^l]", "[\\s\\w]"]),
    st.sampled_from(["[^\\S]", "[]h]", "\\x65", "\\(", "(?i:H)", ""]),
)
SHAPES = [
    "{}{}",
    "{}|{}",
    "({}){}",
    "(?:{})*{}",
    "(?:{})+?{}",
    "(?:{}){{1,2}}{}",
    "(?:{})?{}",
    "(?={}){}",
    "(?!{}){}",
]
SHAPES += [
    "(?<={}){}",
    "(?<!{}){}",
    "(?>{}){}",
    "(?:{})*+{}",
    "({})\\1{}",
    "(?P<n>{})(?P=n){}",
    "({})?(?(1){}|l)",
]


def _join(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda shape, a, b: shape.format(a, b), st.sampled_from(SHAPES), children, children)


@COMMON
@given(pattern=st.recursive(ATOMS, _join, max_leaves=6), ignore_case=st.booleans())
def test_any_valid_pattern_matches_the_same_lines(
    tree: Path, reference: Reference, pattern: str, ignore_case: bool
) -> None:
    for path in ("mixed.txt", "crlf.txt", "docs/guide.md", "unicode-日本.txt"):
        args = {"pattern": pattern, "path": path, "context_before": 0, "case_insensitive": ignore_case}
        theirs = reference("grep", {"workspace": tree}, **args)
        if "look-behind requires fixed-width" not in theirs[0]:
            assert native("grep", {"workspace": tree}, **args) == theirs


@COMMON
@given(text=st.text("ab\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029 ", max_size=30), before=st.integers(0, 3))
def test_lines_end_where_the_reference_ends_them(same: Same, tree: Path, text: str, before: int) -> None:
    (tree / "empty-dir/lines").write_bytes(text.encode())
    try:
        for pattern in ("a", "^$", "\\s", "b$"):
            same("grep", pattern=pattern, path="empty-dir/lines", context_before=before, context_after=1)
    finally:
        (tree / "empty-dir/lines").unlink()


def test_the_schemas_are_those_of_the_reference(tree: Path, reference: Reference) -> None:
    for name in ("grep", "find_files"):
        ours = native_tool(name, {})
        theirs = reference.ask({"tool": name, "policy": {}, "describe": True})
        parameters = ours.parameters
        if name == "grep":
            # These would promise what is not done.
            del parameters["properties"]["pages"]["description"]
            del theirs["parameters"]["properties"]["pages"]["description"]
            theirs["description"] = ours.description
        assert json.dumps(parameters) == json.dumps(theirs["parameters"])
        assert (ours.name, ours.description) == (theirs["name"], theirs["description"])
        assert ours.read_only
        assert ours.concurrency_safe
        assert not ours.exclusive


# What follows is where the tools differ from the reference on purpose.


def test_documents_are_left_out_and_the_result_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.PDF").write_bytes(b"%PDF hello")
    (tmp_path / "b.docx").write_bytes(b"PK hello")
    (tmp_path / "c.txt").write_text("hello\n")
    text, is_error = native("grep", {"workspace": tmp_path}, pattern="hello")
    assert text == "c.txt:1\n> 1| hello\n\n(skipped 2 PDF/Office files: their text is not searched)"
    assert not is_error
    text, is_error = native("grep", {"workspace": tmp_path}, pattern="hello", path="a.PDF")
    assert text == "Error searching document a.PDF: PDF and Office files are not supported."
    assert is_error


def test_pipes_and_sockets_do_not_block_a_search(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("pipe", tmp_path / "pipe-link")
    os.symlink("/dev/zero", tmp_path / "zero")
    (tmp_path / "c.txt").write_text("hello\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        text, _ = native("grep", {"workspace": tmp_path}, pattern="hello")
    assert text == "c.txt:1\n> 1| hello\n\n(skipped 4 binary/unreadable files)"
    found, _ = native("find_files", {"workspace": tmp_path})
    assert found.split() == ["c.txt", "pipe", "pipe-link", "s", "zero"]


def test_a_link_does_not_lead_out_of_the_boundary(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("hello secret\n")
    (work / "own").write_text("hello own\n")
    os.symlink(tmp_path / "secret", work / "link")
    os.symlink("own", work / "other")
    bounded = {"workspace": work, "allowed_dir": work}
    text, _ = native("grep", bounded, pattern="hello")
    assert text == (
        "other:1\n> 1| hello own\n\nown:1\n> 1| hello own\n\n"
        "(skipped 1 links that lead outside the allowed directories)"
    )
    assert "hello secret" in native("grep", {"workspace": work}, pattern="hello")[0]
    extended = {**bounded, "extra_read_allowed_dirs": [tmp_path]}
    assert "hello secret" in native("grep", extended, pattern="hello")[0]


def test_a_boundary_without_a_workspace_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello\n")
    policy = {"allowed_dir": tmp_path}
    assert "outside allowed directory" in native("grep", policy, pattern="root", path="/etc")[0]
    assert native("grep", policy, pattern="hello", path=str(tmp_path))[0] == "a:1\n> 1| hello"


def test_names_that_are_no_utf8_are_shown_with_replacements(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("hello\n")
    assert native("grep", {"workspace": tmp_path}, pattern="hello")[0] == "caf\ufffd.txt:1\n> 1| hello"
    assert native("find_files", {"workspace": tmp_path})[0] == "caf\ufffd.txt"


def test_a_pattern_that_explodes_ends_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 5000 + "\n")
    text, is_error = native("grep", {"workspace": tmp_path}, pattern="(a+)+\\1c(?=d)|(a|a)*(?<!x)b\\2")
    assert text.startswith(("Error searching files: ", "No matches found"))
    assert is_error == text.startswith("Error")


def test_arguments_that_are_no_json_object_are_refused() -> None:
    for text in ("[]", "{", "1"):
        with pytest.raises(ValueError, match="arguments_json"):
            _native.grep_tool().run_blocking(text)


def test_the_classes_have_the_constructor_and_the_metadata_of_tools(tree: Path) -> None:
    from nanobot_tools.tools.search import FindFilesTool, GrepTool

    for cls, name in ((GrepTool, "grep"), (FindFilesTool, "find_files")):
        tool = cls(tree, tree, extra_allowed_dirs=[tree.parent / "outside"])
        assert (tool.name, tool.read_only, tool.concurrency_safe) == (name, True, True)
        assert tool.description == tool._native_tool.description
        assert tool.parameters == tool._native_tool.parameters
        assert cls._scopes == {"core", "subagent"}
        arguments = json.dumps({"path": "../outside", "pattern": "hello"})
        assert not tool._native_tool.run_blocking(arguments)[1]


def test_a_context_decides_on_the_boundary(tree: Path) -> None:
    from nanobot_tools.tools.search import GrepTool

    def config(restrict: bool = False, sandbox: str = "", enable: bool = True) -> SimpleNamespace:
        return SimpleNamespace(
            restrict_to_workspace=restrict,
            exec=SimpleNamespace(sandbox=sandbox),
            file=SimpleNamespace(enable=enable),
        )

    def refused(settings: object) -> bool:
        tool = GrepTool.create(SimpleNamespace(config=settings, workspace=str(tree)))
        return tool._native_tool.run_blocking(json.dumps({"pattern": "hello", "path": "../outside"}))[1]

    assert not refused(config())
    assert not refused(None)
    assert refused(config(restrict=True))
    assert refused(config(sandbox="bwrap"))
    assert GrepTool.enabled(SimpleNamespace())
    assert not GrepTool.enabled(SimpleNamespace(config=config(enable=False)))

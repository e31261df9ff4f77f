# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example assignment, its solution and what gets fewer points; assignments that are none."""

import json
import re
from pathlib import Path

import pytest

from nki_mlir.cli import grade as command
from nki_mlir.grading.assignment import BadAssignment, NoSubmission, load_assignment, submission_file
from nki_mlir.grading.grades import grade

CLASSROOM = Path(__file__).parents[2] / "examples" / "classroom"
POINTS = {"solution": [40, 20, 40], "wrong_edge": [40, 0, 40], "wrong_slow": [40, 20, 0], "wrong_cheat": [0, 0, 0]}


@pytest.fixture(scope="module")
def grades(scorer):
    assignment = load_assignment(CLASSROOM / "assignment.toml")
    return {name: grade(assignment, CLASSROOM / f"{name}.py", scorer) for name in POINTS}


@pytest.mark.parametrize("name", POINTS)
def test_submission__gets_its_points(name, grades):
    assert [one.points for one in grades[name].parts] == POINTS[name], str(grades[name])


def test_reports(grades):
    text = str(grades["wrong_edge"]).splitlines()
    assert text[0] == "Softmax of rows: 80 of 100 points" and "0 of 20  rows that do not divide by 128: " in text[2]
    document = grades["solution"].document()
    assert (document["points"], document["possible"], document["source"]) == (100, 100, "model")
    assert document["parts"][0]["verdict"]["verdict"] == "right" and json.dumps(document)
    tests = grades["wrong_slow"].autograder()["tests"]
    assert all(re.match(r"right, [\d.]+ us on the model \([\d.]+-[\d.]+\)", t["output"]) for t in tests)
    assert [(t["score"], t["max_score"], t["status"]) for t in tests] == [(40, 40, "passed"), (20, 20, "passed"),
                                                                          (0, 40, "failed")]
    assert "NKI-SCORE-FORBIDDEN" in grades["wrong_cheat"].parts[0].text


def test_command(tmp_path, capsys):
    (tmp_path / "reference.py").write_text((CLASSROOM / "reference.py").read_text())
    (tmp_path / "a.toml").write_text('reference = "reference.py"\nkernel = "row_softmax"\n[[part]]\nname = "one"\npoints = 3\n'
                                     'cases = [{rows = 64, columns = 16}]\nmicroseconds = {full = 0.1, relaxed = 1000.0}\n'
                                     'relaxed_share = 0.5\n')
    file = tmp_path / "out.json"
    arguments = [str(tmp_path / "a.toml"), str(CLASSROOM / "solution.py"), "--autograder", str(file), "--at-least", "2"]
    assert command.main(arguments) == 1
    assert "a: 1.5 of 3 points\n  1.5 of 3  one: right, " in capsys.readouterr().out
    assert json.loads(file.read_text())["score"] == 1.5


PART = "reference = 'here.py'\n[[part]]\npoints = 1\n"


@pytest.mark.parametrize("text, at, message", [
    ("x = [", "1:6", "is not TOML: "), ("a = 1\nb = ?", "2:5", "is not TOML: "), ("a = '\xff'", "1:6", "is not UTF-8"),
    ("name = 'a'", "1:1", "has no reference"), ("name = 'a'\n  reference = 1", "2:3", "has no reference"),
    ("\nreference = 'r.py'", "2:1", "names the reference r.py, which does not exist"),
    ("reference = 'here.py'", "1:1", r"has no \[\[part\]\]"), ("reference = 'here.py'\npart = [1]", "2:1", r"has no \[\[part\]\]"),
    ("reference = 'here.py'\ncolor = 1", "2:1", "has the unknown field color"),
    ("reference = 'here.py'\n[[part]]\nname = 'a'", "2:1", "has no points in part 1"),
    (f"{PART}[[part]]\npoints = 1\ntime = 3", "6:1", "has the unknown field time in part 2"),
    (f"{PART}microseconds = 3", "4:1", "needs full and relaxed as microseconds of part 1"),
    (f"{PART}microseconds = {{full = nan}}", "4:1", "needs a number above 0 as microseconds of part 1"),
    (f"{PART}[limits]\nseconds = 1e400", "5:1", "needs a number above 0 as seconds"),
    (f"{PART}[limits]\nhours = 1", "4:2", "has limits other than"),
    (f"{PART}relaxed_share = 1.5", "4:1", "needs a number above 0 of at most 1 as relaxed_share of part 1"),
    (f"{PART}sbuf_bytes = 1.5", "4:1", "needs an integer above 0 as sbuf_bytes of part 1"),
    (f"{PART}hbm_ratio = {'9' * 400}", "4:1", "needs a number above 0 as hbm_ratio"),
    (f"{PART}grid = [9223372036854775808]", "4:1", "each from 1 to 16,777,216, as grid of part 1"),
    (f"{PART}grid = true", "4:1", "as grid of part 1"), (f"{PART}cases = [3]", "4:1", "needs a list of tables as cases"),
    (PART.replace("1", "true"), "3:1", "needs a number above 0 as points"), (f"kernel = 1\n{PART}", "1:1", "needs a string as kernel"),
])
def test_assignments_that_are_none(text, at, message, tmp_path):
    (tmp_path / "a.toml").write_bytes(text.encode("latin-1"))
    (tmp_path / "here.py").write_text("")
    with pytest.raises(BadAssignment, match=rf"^{re.escape(str(tmp_path))}/a.toml:{at}: error: the assignment .*{message}"):
        load_assignment(tmp_path / "a.toml")


def test_submissions_that_are_none(tmp_path):
    assignment = load_assignment(CLASSROOM / "assignment.toml")
    with pytest.raises(NoSubmission, match=r"nothing.py: error: the submission does not exist \[NKI-GRADE-SUBMISSION\]"):
        submission_file("nothing.py", assignment)
    with pytest.raises(NoSubmission, match="has 0 Python files"):
        submission_file(tmp_path, assignment)
    (tmp_path / "a.py").write_text("")
    assert submission_file(tmp_path, assignment) == tmp_path / "a.py"


COMMAND = re.compile(r"^ *- run: (.*)$", re.MULTILINE)


def test_container__has_what_it_copies_and_starts():
    """Of the container file: files that it copies exist, and what it starts is a command with its arguments."""
    lines = dict(line.split(" ", 1) for line in (CLASSROOM / "Containerfile").read_text().splitlines() if line[:1].isupper())
    *copied, folder = lines["COPY"].split()
    assert all((CLASSROOM / name).is_file() for name in copied) and folder.endswith("/")
    program, *arguments = json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])
    assert program in scripts()
    options = command.parser().parse_args(arguments)
    assert options.assignment == folder + copied[0] and options.submission == "/submission.py"
    assert Path(load_assignment(CLASSROOM / copied[0]).request["reference"]).name in copied


def test_workflow__runs_commands_that_there_are():
    text = (CLASSROOM / "workflow.yml").read_text()
    install, run = COMMAND.findall(text)
    assert install == "pip install nki_mlir"
    program, *arguments = run.split()
    assert program in scripts()
    options = command.parser().parse_args(arguments)
    assert (CLASSROOM / options.assignment).is_file() and f"path: {options.autograder}" in text
    assert options.at_least == sum(part.points for part in load_assignment(CLASSROOM / options.assignment).parts)


def scripts():
    """The commands that the package installs."""
    text = (CLASSROOM.parents[1] / "pyproject.toml").read_text()
    section = text[text.index("[project.scripts]"):].split("\n[")[0]
    return set(re.findall(r"^([\w-]+) *=", section, re.MULTILINE))

"""`genelab new-task` on models of strangers: names that are code, and files that are not theirs to copy."""

from __future__ import annotations

import ast
import functools
import os
import re
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import mujoco
import pytest

from genelab.cli.main import run
from genelab.config.files import temporary_name
from genelab.errors import UsageError
from genelab.scaffold import Kind, project_files, survey
from genelab.scaffold.code import parsed
from genelab.scene.sources import is_asset

NAMES = (
    'x" + str(__import__("os").system("id")) + "',
    "'; import os; os.system('id') #",
    '"""',
    "'''",
    '"""\nimport os\n"""',
    "back\\slash\\",
    "\\",
    "\\N{BULLET}",
    "{__import__('os')}",
    "%(x)s",
    "$name",
    "${file}",
    "$$",
    "a$b",
    "tip(left)",
    "x|y",
    "[a-z]*",
    "line\nimport os\n",
    "line\rimport os",
    "\u2028import os",
    "\u0085import os",
    "\u202emi\u202d",
    "</code><script>alert(1)</script>",
    "| cell | `code` ![x](http://x)",
    "class",
    "None",
    "é漢字",
    "# no comment",
    "n" * 3000,
)
KINDS: tuple[Kind, ...] = ("velocity", "reach", "blank")
CUBE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
PNG = b"\x89PNG\r\n\x1a\n"
SECRET = b"root:x:0:0:root:/root:/bin/bash\n"


def dog(word: str) -> str:
    """A robot that stands on four feet, all of whose parts are called after a word."""
    legs = "".join(
        f'<body name={quoteattr(f"{side}_{word}")} pos="{x} {y} 0"><joint name={quoteattr(f"{side}_hip{word}")} '
        'axis="0 1 0" range="10 60"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5"/></body>'
        for side, x, y in (("FL", 0.2, 0.1), ("FR", 0.2, -0.1), ("RL", -0.2, 0.1), ("RR", -0.2, -0.1))
    )
    has_motor = len(word) % 2 and not set(word) & set("\n\r")  # `.*` does not match a line feed
    motor = f"<actuator><motor name={quoteattr(word)} joint={quoteattr(f'FL_hip{word}')}/></actuator>"
    return (
        f"<mujoco model={quoteattr(word)}><worldbody><body name={quoteattr(word)} pos='0 0 1'><freejoint/>"
        f'<geom name={quoteattr(word)} type="box" size=".3 .1 .05" mass="6"/>{legs}</body></worldbody>'
        f"<keyframe><key name={quoteattr(word)} qpos='0 0 1 1 0 0 0 .2 .2 .2 .2'/></keyframe>"
        f"{motor if has_motor else ''}</mujoco>"
    )


def arm(word: str, mesh: str = "") -> str:
    """A URDF whose links and joints are called after a word; one inertia of it has to be mended."""
    inertia = '<inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".03" ixy="0" ixz="0" iyz="0"/></inertial>'
    box = '<collision><geometry><box size=".05 .05 .2"/></geometry></collision>'
    joint = '<origin xyz="0 0 .3"/><axis xyz="0 1 0"/><limit lower="1" upper="2" effort="4" velocity="3"/></joint>'
    base, upper, hand = (quoteattr(f"{name}{word}") for name in ("base", "upper", "hand"))
    return (
        f"<robot name={quoteattr(word)}><link name={base}/><link name={upper}>{inertia}{box}{mesh}</link>"
        f"<link name={hand}>{inertia}{box}</link>"
        f'<joint name={quoteattr(f"one{word}")} type="revolute"><parent link={base}/><child link={upper}/>{joint}'
        f'<joint name={quoteattr(f"two{word}")} type="revolute"><parent link={upper}/><child link={hand}/>{joint}'
        "</robot>"
    )


ROBOTS = {".xml": dog, ".urdf": arm}


def shape(text: str) -> str:
    """The syntax of Python code without the values of its constants."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = type(node.value).__name__
    return ast.dump(tree)


def project(tmp_path: Path, name: str, text: str, kind: Kind) -> dict[str, str]:
    source = tmp_path / name
    source.write_text(text)
    files = project_files("brought", source, kind, survey(source, kind=kind))
    return {path: data.decode() for path, data in files.items() if "/model/" not in path}


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, Kind], dict[str, str]]:
    """Projects of robots with harmless names."""
    folder = tmp_path_factory.mktemp("harmless")

    @functools.cache
    def made(suffix: str, word: str, kind: Kind) -> dict[str, str]:
        return project(folder, f"robot{suffix}", ROBOTS[suffix](word), kind)

    return made


def file_name(word: str, suffix: str) -> str:
    word = word.replace("\\", "") if suffix == ".xml" else word  # MuJoCo reads it as a slash
    return "a" + word.replace("/", "").replace("\0", "")[:80] + suffix


@pytest.mark.parametrize("suffix", [".xml", ".urdf"])
@pytest.mark.parametrize("word", NAMES, ids=range(len(NAMES)))
def test_no_name_becomes_code_or_markup(
    word: str, suffix: str, tmp_path: Path, harmless: Callable[[str, str, Kind], dict[str, str]]
) -> None:
    robot = ROBOTS[suffix]
    for kind in KINDS if suffix == ".xml" else KINDS[1:]:
        like = "x" if "<motor" in robot(word) else "xx"
        expected = harmless(suffix, like, kind)
        files = project(tmp_path, file_name(word, suffix), robot(word), kind)
        assert files.keys() == expected.keys()
        for path, text in files.items():
            if path.endswith(".py"):
                assert shape(text) == shape(expected[path]), path
                assert text.replace("\n", "").replace("·", "").isprintable(), path
            elif path.endswith(".toml"):
                assert tomllib.loads(text) == tomllib.loads(expected[path])
            else:
                assert text.count("\n") == expected[path].count("\n"), path
                assert text.count("<") == expected[path].count("<"), path
                assert text.replace("\n", "").isprintable(), path


def test_the_name_of_the_file_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / 'x" + str(open("PWNED", "w")) + ".xml'
    source.write_text(dog("x"))
    monkeypatch.chdir(tmp_path)
    assert run(["new-task", "brought_evil", "--from", str(source)]) == 0
    code = "import sys; sys.path.insert(0, 'brought_evil'); from brought_evil import robot; robot.model().compile()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert not (tmp_path / "PWNED").exists()
    assert (tmp_path / "brought_evil/brought_evil/model" / source.name).is_file()


@pytest.mark.parametrize(("path", "text"), [("a.py", "x = (\n"), ("a.py", "x = '\n'"), ("a.toml", 'x = "\n"')])
def test_what_cannot_be_read_is_not_written(path: str, text: str) -> None:
    with pytest.raises(UsageError, match="a name in the robot's file breaks it"):
        parsed(text, path)
    assert parsed("", path) == ""


def test_a_tip_of_any_name_is_found(tmp_path: Path) -> None:
    for word in ("tip(left)", "a$b", "x|y"):
        text = project(tmp_path, "arm.urdf", arm(word), "reach")["brought/task.py"]
        namespace: dict[str, Any] = {}
        exec(next(line for line in text.splitlines() if line.startswith("TIP = ")).partition("#")[0], namespace)
        assert re.fullmatch(namespace["TIP"], f"hand{word}")


# -- files


def refused(tmp_path: Path, source: Path, capfd: Any, *more: str) -> str:
    assert run(["new-task", "brought_x", "--from", str(source), "--dir", str(tmp_path / "out"), *more]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []
    return error


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of a robot, with files beside it that are not the robot's."""
    folder = tmp_path / "robot"
    (folder / "assets").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "secret.obj").write_text(CUBE)
    (tmp_path / "secret.xml").write_text("<mujoco><worldbody><body name='mine'/></worldbody></mujoco>")
    (tmp_path / "robot.png").write_bytes(PNG)
    (folder / "link.obj").symlink_to(tmp_path / "secret.obj")
    (folder / "linked").symlink_to(tmp_path)
    return folder


def mjcf(part: str, body: str = "", head: str = "") -> str:
    return (
        f"<mujoco>{head}<asset>{part}</asset><worldbody><body name='b'><joint name='j'/><geom size='.1'/>{body}</body>"
        "</worldbody></mujoco>"
    )


MESH = '<mesh name="m" file="{}"/>'
OUTSIDE = (
    mjcf('<texture name="t" type="2d" file="{secret}" content_type="image/ktx"/>'),
    mjcf('<texture name="t" type="cube" fileright="../robot.png" file="../robot.png"/>'),
    mjcf('<hfield name="h" size="1 1 1 1" file="../robot.png"/>'),
    mjcf('<skin name="s" file="../secret"/>'),
    mjcf(MESH.format("../secret.obj")),
    mjcf(MESH.format("..\\secret.obj")),
    mjcf(MESH.format("secret.obj"), head='<compiler meshdir="..\\"/>'),
    mjcf(MESH.format("link.obj")),
    mjcf(MESH.format("linked/secret.obj")),
    mjcf(MESH.format("{secret}.obj")),
    mjcf(MESH.format("secret.obj"), head='<compiler meshdir=".."/>'),
    mjcf(MESH.format("secret.obj"), head='<compiler assetdir="linked"/>'),
    mjcf("", '<include file="../secret.xml"/>'),
    mjcf("", '<include file="linked/secret.xml"/>'),
    mjcf('<model name="k" file="../secret.xml"/>', '<frame><attach model="k" body="mine" prefix="k"/></frame>'),
    mjcf("", '<flexcomp name="f" type="mesh" dim="2" file="../secret.obj"/>'),
)


@pytest.mark.parametrize("text", OUTSIDE, ids=range(len(OUTSIDE)))
def test_mjcf_copies_nothing_from_outside_of_its_folder(text: str, home: Path, tmp_path: Path, capfd: Any) -> None:
    source = home / "robot.xml"
    source.write_text(text.replace("{secret}", str(tmp_path / "secret")))
    error = refused(tmp_path, source, capfd)
    assert f"lies outside of the model's folder; pass --assets {tmp_path}" in error


@pytest.mark.parametrize(
    "mesh", ["{}/secret.obj", "file://{}/secret.obj", "../secret.obj", "link.obj", "package://secret.obj"]
)
@pytest.mark.parametrize("shape", ["visual", "collision"])
def test_urdf_copies_nothing_from_outside_of_its_folder(
    mesh: str, shape: str, home: Path, tmp_path: Path, capfd: Any
) -> None:
    source = home / "robot.urdf"
    name = mesh.format(tmp_path)
    source.write_text(arm("", f'<{shape}><geometry><mesh filename="{name}"/></geometry></{shape}>'))
    assert "lies outside of the model's folder; pass --assets" in refused(tmp_path, source, capfd)


def test_what_was_left_out_is_not_copied(home: Path, tmp_path: Path) -> None:
    source = home / "robot.urdf"
    for name in (f"file://{tmp_path}/secret", "inside"):
        (home / "inside").write_bytes(SECRET)
        source.write_text(arm("", f'<visual><geometry><mesh filename="{name}"/></geometry></visual>'))
        files = project_files("brought", source, "reach", survey(source))
        assert [path for path in files if "/model/" in path] == ["brought/model/robot.urdf"]
        assert b"visual" not in files["brought/model/robot.urdf"]


def test_what_is_no_mesh_or_texture_is_not_copied(home: Path, tmp_path: Path, capfd: Any) -> None:
    (home / "key").write_bytes(SECRET)
    source = home / "robot.xml"
    source.write_text(mjcf('<texture name="t" type="2d" file="key" content_type="image/ktx"/>'))
    error = refused(tmp_path, source, capfd)
    assert "key is no mesh, texture or height field, and is not copied" in error
    os.mkfifo(home / "pipe")
    source.write_text(mjcf(MESH.format("pipe")))
    assert "pipe is no regular file" in refused(tmp_path, source, capfd)


def test_a_skin_is_packed_like_a_mesh(home: Path, tmp_path: Path) -> None:
    skin = struct.pack("<4i", 3, 0, 1, 1) + struct.pack("<9f", 0, 0, 0, 1, 0, 0, 0, 1, 0) + struct.pack("<3i", 0, 1, 2)
    skin += b"b".ljust(40, b"\0") + struct.pack("<7f", 0, 0, 0, 1, 0, 0, 0)
    skin += struct.pack("<i", 3) + struct.pack("<3i", 0, 1, 2) + struct.pack("<3f", 1, 1, 1)
    (tmp_path / "s.skn").write_bytes(skin)
    source = home / "robot.xml"
    source.write_text(mjcf("").replace("<asset></asset>", '<deformable><skin name="s" file="../s.skn"/></deformable>'))
    files = project_files("brought", source, "blank", survey(source, assets=[tmp_path]), [tmp_path])
    assert files["brought/model/assets/s.skn"] == skin
    assert b'file="assets/s.skn"' in files["brought/model/robot.xml"]


def test_a_folder_may_be_allowed(home: Path, tmp_path: Path) -> None:
    """The MJCF is written anew then, and the project needs nothing outside of it."""
    source = home / "robot.xml"
    mesh = '<geom type="mesh" mesh="m"/>'
    source.write_text(mjcf(MESH.format("secret.obj"), mesh, head='<compiler meshdir=".."/>'))
    words = ["new-task", "brought_allowed", "--from", str(source), "--dir", str(tmp_path / "out")]
    assert run([*words, "--assets", str(tmp_path)]) == 0
    model = tmp_path / "out/brought_allowed/brought_allowed/model"
    assert sorted(path.name for path in model.rglob("*")) == ["assets", "robot.xml", "secret.obj"]
    (tmp_path / "secret.obj").unlink()
    assert mujoco.MjModel.from_xml_path(str(model / "robot.xml")).nmesh == 1


def test_what_is_inside_is_copied_as_it_is(home: Path) -> None:
    (home / "assets/m.obj").write_text(CUBE)
    (home / "parts").mkdir()
    (home / "parts/more.xml").write_text(
        f"<mujoco><asset>{MESH.format('n.obj')}</asset></mujoco>".replace('"m"', '"n"')
    )
    (home / "parts/n.obj").write_text(CUBE)
    source = home / "robot.xml"
    body = '<geom type="mesh" mesh="m"/><geom type="mesh" mesh="n"/>'
    head = '<compiler meshdir="assets"/><include file="parts/more.xml"/>'
    source.write_text(mjcf(MESH.format("../assets/m.obj"), body, head))
    files = project_files("brought", source, "blank", survey(source))
    names = sorted(path.removeprefix("brought/model/") for path in files if "/model/" in path)
    assert names == ["assets/m.obj", "parts/more.xml", "parts/n.obj", "robot.xml"]
    assert files["brought/model/robot.xml"] == source.read_bytes()


def test_a_ros_package_is_one_folder(home: Path) -> None:
    """`package://` and `../meshes` work where package.xml says how far the package goes."""
    (home / "package.xml").write_text("<package/>")
    (home / "urdf").mkdir()
    (home / "assets/m.obj").write_text(CUBE)
    for name in ("package://robot/assets/m.obj", "../assets/m.obj"):
        source = home / "urdf/robot.urdf"
        source.write_text(arm("", f'<visual><geometry><mesh filename="{name}"/></geometry></visual>'))
        files = project_files("brought", source, "reach", survey(source))
        assert files["brought/model/meshes/assets_m.obj"] == CUBE.encode()


BOMB = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
DOCTYPES = ('<!ENTITY e SYSTEM "file:///etc/passwd">', f'<!ENTITY e0 "x">{BOMB}<!ENTITY e "&e11;">', "")


@pytest.mark.parametrize("entities", DOCTYPES, ids=["external", "bomb", "none"])
@pytest.mark.parametrize("suffix", [".xml", ".urdf"])
def test_a_document_type_is_refused_in_a_line(entities: str, suffix: str, tmp_path: Path, capfd: Any) -> None:
    source = tmp_path / f"robot{suffix}"
    text = dog("x") if suffix == ".xml" else arm("x")
    source.write_text(f"<!DOCTYPE x [{entities}]>" + text.replace('"x"', '"&e;"', 1))
    assert "has a <!DOCTYPE>, which no model needs: delete it" in refused(tmp_path, source, capfd)
    source.write_text(text[:-20])
    assert "robot" in refused(tmp_path, source, capfd)


def test_formats_are_known_by_their_content() -> None:
    floats = struct.pack("<6f", *range(6))
    skin = struct.pack("<4i", 1, 0, 1, 1) + b"\0" * (12 + 12) + b"\0" * (40 + 28) + struct.pack("<i", 1) + b"\0" * 8
    good = (
        PNG,
        CUBE.encode(),
        b"\0" * 80 + struct.pack("<I", 1) + b"\0" * 50,
        b"solid x\n facet normal 0 0 1\n",
        b'<?xml version="1.0"?><COLLADA xmlns="x"/>',
        struct.pack("<2i", 2, 3) + floats,
        struct.pack("<3i", 2, 2, 3) + b"\0" * 12,
        struct.pack("<4i", 1, 0, 0, 1) + b"\0" * 24,
        skin,
    )
    assert [data for data in good if not is_asset(data)] == []
    for data in (
        SECRET,
        b"",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
        b"a,b\n1,2\n",
        b"v = 1\n",
        b"<x/>",
        b"\x7fELF" * 9,
    ):
        assert not is_asset(data)


# -- kills


def test_a_project_is_there_whole_or_not_at_all(tmp_path: Path, capfd: Any) -> None:
    source = tmp_path / "dog.xml"
    source.write_text(dog("x"))
    words = ["new-task", "brought_y", "--from", str(source), "--dir", str(tmp_path)]
    killed = (
        "import os, sys\nfrom genelab.config import files\nfrom genelab.cli.main import run\n"
        "real, left = os.replace, [4]\n"
        "def replace(a, b):\n    left[0] -= 1\n    os.kill(os.getpid(), 9) if not left[0] else real(a, b)\n"
        "os.replace = replace\nrun(sys.argv[1:])\n"
    )
    result = subprocess.run([sys.executable, "-c", killed, *words], capture_output=True, timeout=120, check=False)
    assert result.returncode == -9
    assert not (tmp_path / "brought_y").exists()
    assert run(words) == 0
    error = capfd.readouterr().err
    (leftover,) = tmp_path.glob(".brought_y.*.tmp")
    assert f"{leftover} was left by a `genelab new-task` that was killed: delete it" in error
    assert (tmp_path / "brought_y/tests/test_task.py").is_file()


def test_a_project_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genelab.config.files import write_new_directory

    with pytest.raises(UsageError, match="`dir`: cannot write"):
        write_new_directory(tmp_path / "p", {"a": b"", "a/b": b""}, "dir")
    assert list(tmp_path.iterdir()) == []
    assert temporary_name(tmp_path / "p").name.startswith(".p.")


WORLD = """
import torch
from genelab import TASKS
from genelab.scene import ArticulationCfg, mjcf_file


def task():
    task = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    for env in (task.env, task.playing):
        env.scene.entities["more"] = ArticulationCfg(spec=mjcf_file, spec_args={{"path": {path!r}}})
    return task


TASKS.register("Test-Outside-v0", task)
"""


def test_a_world_is_written_with_the_models_own_files_only(home: Path, tmp_path: Path, capfd: Any) -> None:
    """`info --mjcf` packs as `export --for mujoco` and `--for web` do."""
    source, module = home / "robot.xml", tmp_path / "brought_outside.py"
    module.write_text(WORLD.format(path=str(source)))
    words = ["info", "Test-Outside-v0", "--import", str(module), "--mjcf", str(tmp_path / "world")]
    source.write_text(mjcf(MESH.format("../secret.obj"), '<geom type="mesh" mesh="m"/>'))
    assert run(words) == 2
    assert f"secret.obj lies outside of the model's folder; pass --assets {tmp_path}" in capfd.readouterr().err
    assert run([*words, "--assets", str(tmp_path)]) == 0
    assert (tmp_path / "world/assets/secret.obj").read_text() == CUBE
    (home / "key").write_bytes(SECRET)
    source.write_text(mjcf('<texture name="t" type="2d" file="key" content_type="image/ktx"/>'))
    assert run(words) == 2
    assert "key is no mesh, texture or height field, and is not copied" in capfd.readouterr().err

"""The parts of lab/gpu_kernels.py: assembly, a driver's words, rules, comparisons, tables."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dl4all.ops.linalg.gemm import TILES
from dl4all.runtime.null.backend import describe
from lab import gpu_kernels
from lab.kernel_figures import collection, isa, records, report, rules
from lab.kernel_figures.collection import Collection, collect, read_line
from lab.kernel_figures.families import FAMILIES, FamilyMissing, environments
from lab.kernel_figures.figures import Figures, figures, from_row, to_row
from lab.kernel_figures.isa import Instruction, MainLoop, main_loop
from lab.kernel_figures.pipelines import DECLARED, Pipeline, gather, label

PAGE = collection.ROOT / "docs" / "gpus.md"

# As RADV prints it: a head, a round of loads, a wait, reads of shared memory, FMAs and the back edge.
STAGED = """
BB0:
	s_mov_b32 s4, 0                                            ; BE840380
	v_fma_f32 v9, v0, v1, v9                                   ; D14B0009
BB1:
	s_cmp_ge_u32 s4, s5                                        ; BF098504
	s_cbranch_scc1 BB3                                         ; BF850001
BB2:
	buffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen            ; E0501000
	buffer_load_dword v4, v8, s[0:3], 0 offen                  ; E0301000
{first}
	ds_read_b128 v[20:23], v7                                  ; D9FC0000
	ds_read2_b64 v[24:27], v7 offset1:1                        ; D8EC0100
	s_waitcnt lgkmcnt(0)                                       ; BF8CC07F
	v_mac_f32_e32 v10, v20, v24                                ; 2C143114
	v_fmac_f32_e32 v11, v21, v24                               ; 56163114
	v_add_u32_e32 v7, 16, v7                                   ; 680E0E90
	v_fma_f32 v12, v22, v24, v12                               ; D14B000C
{second}
	ds_write_b128 v6, v[0:3]                                   ; D9BE0000
	s_barrier                                                  ; BF8A0000
	s_branch BB1                                               ; BF82FFF0
BB3:
	v_fma_f32 v9, v0, v1, v9                                   ; D14B0009
	s_endpgm                                                   ; BF810000
"""
WAIT = "	s_waitcnt vmcnt({})                                          ; BF8C0F70"


def staged(first: int | None, second: int | None) -> MainLoop:
    """The loop with waits for no more than so many loads, before the FMAs and after them."""
    waits = [("" if left is None else WAIT.format(left)) for left in (first, second)]
    found = main_loop(STAGED.format(first=waits[0], second=waits[1]))
    assert found is not None
    return found


def test_a_main_loop_is_counted() -> None:
    found = staged(0, None)
    assert found == MainLoop(
        fmas=3, vectors=4, lds_reads=2, lds_bytes=32, loads=2, narrow_loads=1, waited=2, barriers=1
    )
    assert found.share == 0.75
    assert found.lds_bound == 6 / 32
    assert dataclasses.replace(found, lds_bytes=0).lds_bound is None


@pytest.mark.parametrize(
    ("first", "second", "waited"), [(0, None, 2), (None, 0, 0), (1, 0, 1), (2, 0, 0), (None, None, 0)]
)
def test_loads_return_in_order_and_wait_where_no_fma_is_between(
    first: int | None, second: int | None, waited: int
) -> None:
    assert staged(first, second).waited == waited


def test_a_load_may_be_waited_for_in_the_next_round() -> None:
    """Loads at the end of a round, waited for at the start of the next one: no FMA is between."""
    text = """
BB1:
	s_waitcnt vmcnt(0)
	v_fma_f32 v9, v0, v1, v9
	global_load_dwordx2 v[0:1], v2, off
	s_cbranch_scc0 BB1
	s_endpgm
"""
    found = main_loop(text)
    assert found is not None
    assert (found.loads, found.waited) == (1, 1)
    moved = text.replace("\tv_fma_f32 v9, v0, v1, v9\n", "").replace(
        "off\n", "off\n\tv_fma_f32 v9, v0, v1, v9\n"
    )
    after = main_loop(moved)
    assert after is not None
    assert after.waited == 0


def test_a_round_goes_through_then_and_around_else() -> None:
    """What an inverted mask guards is left out; so is what lies behind a loop."""
    text = """
BB1:
	v_cmp_gt_u32_e32 vcc, s4, v0
	s_and_saveexec_b64 s[6:7], vcc
	s_cbranch_execz BB3
BB2:
	v_mul_f32_e32 v5, v5, v5
BB3:
	s_andn2_b64 exec, s[6:7], exec
	s_cbranch_execz BB5
BB4:
	v_add_f32_e32 v5, 1.0, v5
	v_add_f32_e32 v5, 1.0, v5
BB5:
	v_fma_f32 v9, v0, v1, v9
	s_cbranch_scc0 BB1
BB6:
	s_endpgm
"""
    found = main_loop(text)
    assert found is not None
    assert (found.fmas, found.vectors) == (1, 3)  # the comparison, the product and the FMA


def test_the_loop_with_most_fmas_is_taken_with_those_within_it() -> None:
    text = """
BB1:
	v_fma_f32 v9, v0, v1, v9
	s_cbranch_scc0 BB1
BB2:
	v_mov_b32_e32 v3, 0
BB3:
	v_fma_f32 v9, v0, v1, v9
	v_fma_f32 v9, v0, v1, v9
	s_cbranch_scc0 BB3
BB4:
	s_cbranch_scc0 BB2
	s_endpgm
"""
    found = main_loop(text)
    assert found is not None
    assert (found.fmas, found.vectors) == (2, 3)


def test_a_kernel_without_fmas_in_a_loop_has_no_main_loop() -> None:
    assert main_loop("BB0:\n\tv_fma_f32 v9, v0, v1, v9\n\ts_endpgm\n") is None
    assert main_loop("BB0:\n\tv_add_f32_e32 v9, v0, v1\n\ts_cbranch_scc0 BB0\n") is None


@pytest.mark.parametrize(
    ("op", "arguments", "kind", "fmas", "nbytes"),
    [
        ("v_dual_fmac_f32", "v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5", "vector", 2, 0),
        ("v_dual_fmac_f32", "v0, v1, v2 :: v_dual_mov_b32 v3, v4", "vector", 1, 0),
        ("v_pk_fma_f32", "v[0:1], v[2:3], v[4:5], v[0:1]", "vector", 2, 0),
        ("v_fma_f64", "v[0:1], v[2:3], v[4:5], v[0:1]", "vector", 0, 0),
        ("v_wmma_f32_16x16x16_f16", "v[0:7], v[8:15], v[16:23], v[0:7]", "matrix", 0, 0),
        ("ds_bpermute_b32", "v0, v1, v2", "lanes", 0, 0),
        ("ds_load_2addr_b64", "v[0:3], v4", "lds read", 0, 16),
        ("ds_store_b32", "v4, v0", "lds write", 0, 4),
        ("buffer_load_b96", "v[0:2], v4, s[0:3], 0 offen", "load", 0, 12),
        ("buffer_load_dword", "v0, v4, s[0:3], 0 offen", "load", 0, 4),
        ("global_store_dwordx4", "v4, v[0:3], off", "store", 0, 0),
        ("scratch_load_dword", "v0, off, s4", "scratch", 0, 0),
        ("s_buffer_load_dwordx4", "s[0:3], s[4:7], 0x0", "scalar load", 0, 0),
        ("s_wait_loadcnt", "0x0", "wait", 0, 0),
        ("s_add_u32", "s0, s0, s1", "scalar", 0, 0),
    ],
)
def test_instructions(op: str, arguments: str, kind: str, fmas: int, nbytes: int) -> None:
    assert isa.work_of(Instruction(op, arguments)) == (kind, fmas, nbytes)


# ---- what drivers say ------------------------------------------------------------------------------------

RADV = {
    "VGPRs": 96, "SGPRs": 32, "Spilled VGPRs": 3, "Spilled SGPRs": 1, "Scratch size": 1024, "LDS size": 12800,
    "Code size": 4000, "Instructions": 700, "Subgroups per SIMD": 10, "subgroup": 64,
}  # fmt: skip


def test_waves_of_64_lanes_are_one_on_every_family() -> None:
    found = figures(FAMILIES["navi21"], RADV, 256, None)
    assert found == Figures(
        wave=64, lanes=256, registers=96, waves=5, spilled=3, spilled_scalars=1, scratch=1024, lds=12800,
        code=4000, instructions=700,
    )  # fmt: skip
    assert figures(FAMILIES["polaris10"], RADV, 256, None).waves == 10
    assert figures(FAMILIES["navi21"], {**RADV, "subgroup": 32}, 256, None).waves == 10


def test_other_vendors_words_are_understood() -> None:
    intel = {"Spill Count": 7, "Scratch Memory Size": 64, "Instruction Count": 90, "subgroup": 16}
    found = figures(FAMILIES["dg2"], intel, 40, None)
    assert (found.spilled, found.scratch, found.instructions, found.waves) == (7, 64, 90, None)
    assert found.lanes_used == pytest.approx(40 / 48)
    nvidia = {"GPRs": 72, "Max warps/SM": 28, "Spills to memory": 2, "subgroup": 32}
    found = figures(FAMILIES["ampere"], nvidia, 64, None)
    assert (found.registers, found.waves, found.spilled, found.lanes_used) == (72, 28, 2, 1)


def test_the_share_counts_lanes_that_idle() -> None:
    loop = staged(0, None)
    assert figures(FAMILIES["navi21"], RADV, 32, loop).fma_share == 0.375
    assert figures(FAMILIES["navi21"], RADV, 64, None).fma_share is None


# ---- families --------------------------------------------------------------------------------------------


def test_stubs_are_looked_for_and_given_to_the_driver(tmp_path: Path) -> None:
    icd = str(tmp_path / "icd.json")
    with pytest.raises(FamilyMissing, match=r"dg2 needs libintel_noop_drm_shim\.so.*DL4ALL_INTEL_STUB=PATH"):
        environments(FAMILIES["dg2"], icd, {})
    stub = tmp_path / "stub.so"
    stub.touch()
    (found,) = environments(FAMILIES["ampere"], icd, {"DL4ALL_NOUVEAU_STUB": str(stub)})
    assert (found["LD_PRELOAD"], found["NOUVEAU_CHIPSET"], found["VK_ICD_FILENAMES"]) == (
        str(stub),
        "170",
        icd,
    )
    names = [one["RADV_FORCE_FAMILY"] for one in environments(FAMILIES["navi31"], icd, {})]
    assert names == ["navi31", "gfx1100"]


def test_a_family_without_a_driver_says_so(tmp_path: Path) -> None:
    with pytest.raises(FamilyMissing, match="navi21 cannot be had from the driver that is installed: "):
        collect("navi21", icd=str(tmp_path / "none.json"))


# ---- what is compiled ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pipelines() -> list[Pipeline]:
    """Those of a GPU with 64 lanes and enough of everything."""
    limits = dataclasses.replace(
        describe().limits, workgroup_invocations=1024, workgroup_size=(1024, 1024, 64), shared_memory=65536,
        storage_buffers=64,
    )  # fmt: skip
    info = dataclasses.replace(describe(), type="discrete", subgroup_size=64, limits=limits)
    return gather(info, frozenset({"int64", "subgroup_shuffle", "subgroup_arithmetic"}))


@pytest.mark.full
def test_pipelines_have_the_constants_that_ops_use(pipelines: list[Pipeline]) -> None:
    names = [pipeline.name for pipeline in pipelines]
    assert len(set(names)) == len(names)
    users = {pipeline.used_by for pipeline in pipelines}
    for name, tile in TILES.items():
        if tile.form in ("plain", "shared"):
            assert {f"gemm {name} {case}" for case in ("NN", "NT unaligned", "TN")} <= users, name
    assert {goal.used_by for goal in rules.GOALS} <= users
    assert {"softmax", "conv3d", "exp", "Adam", "network LSTM"} <= users
    declared = {p.module.name for p in pipelines if p.used_by == DECLARED}
    used = {p.module.name for p in pipelines if p.used_by != DECLARED}
    assert declared
    assert not declared & used
    assert not any("SHUFFLE=1" in name for name in used)


@pytest.mark.full
def test_workgroups_follow_the_constants(pipelines: list[Pipeline]) -> None:
    lanes = {p.used_by: p.lanes for p in pipelines if p.used_by.startswith("gemm shared")}
    assert (
        lanes["gemm shared 64x64 NN"]
        == TILES["shared 64x64"].constants[0] * TILES["shared 64x64"].constants[1]
    )
    assert all(0 < p.lanes <= 1024 for p in pipelines)
    assert label("a.comp -DX=1 -DY=2", (3, 4)) == "a.comp X=1 Y=2 (3, 4)"


# ---- children --------------------------------------------------------------------------------------------


def row(**changes: Any) -> list[int | None]:
    return to_row(dataclasses.replace(from_row(GOOD), **changes))


LOOP = MainLoop(256, 300, 24, 384, 2, 0, 0, 1)
GOOD = to_row(
    Figures(
        wave=64, lanes=256, registers=64, waves=8, lds=12800, code=4000, instructions=700,
        loop=LOOP,
    )
)  # fmt: skip


def test_lines_of_a_child_are_read() -> None:
    made, seen = Collection("navi21"), dict[str, str]()
    lines: list[dict[str, object]] = [
        {"driver": "Mesa 1", "hardware": "Null"},
        {"begun": "a", "used_by": "exp"}, {"figures": GOOD},
        {"begun": "b", "used_by": DECLARED}, {"figures": GOOD},
        {"begun": "c", "used_by": "sin"}, {"failed": "no"},
        {"begun": "d", "used_by": "cos"},
    ]  # fmt: skip
    begun = ""
    for line in lines:
        begun = read_line(made, seen, line, begun)
    assert begun == "d"
    assert (made.driver, made.hardware, made.compiled) == ("Mesa 1", "Null", 2)
    assert made.used_by == {"a": "exp"}
    assert made.kernels == {"a": from_row(GOOD)}
    assert made.failures == {"c": "no"}


@pytest.mark.parametrize(
    ("death", "seconds", "status"), [("kill -SEGV $$", 120.0, -11), ("exec sleep 120", 3.0, -9)]
)
def test_a_driver_that_dies_or_hangs_is_started_again_without_the_kernel(
    death: str, seconds: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    icd = tmp_path / "icd.json"
    icd.touch()
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\n"
        'echo \'{"driver": "Mesa 1", "hardware": "Null"}\'\n'
        'case "$3" in *\'"bad"\'*) ;; *)\n'
        f'  echo \'{{"begun": "bad", "used_by": "exp"}}\'; {death};; esac\n'
        'echo \'{"begun": "good", "used_by": "sin"}\'\n'
        f"echo '{{\"figures\": {re.sub('None', 'null', str(GOOD))}}}'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(collection, "MOST_SECONDS", seconds)
    made = collect("navi21", icd=str(icd))
    assert made.kernels == {"good": from_row(GOOD)}
    assert made.failures == {"bad": f"the driver ended the process with {status}"}


# ---- rules and comparisons -------------------------------------------------------------------------------


def one(
    figures_row: list[int | None], name: str = "linalg/gemm.comp (1)", driver: str = "Mesa 25.0"
) -> Collection:
    return Collection("navi21", driver, "Null", {name: from_row(figures_row)}, {name: "gemm shared 64x64 NN"})


@pytest.mark.parametrize(
    ("changes", "name", "rule"),
    [
        ({"spilled": 1}, "a", "no spilled registers"),
        ({"spilled_scalars": 1}, "a", "no spilled registers"),
        ({"scratch": 16}, "a", "no scratch memory"),
        ({"waves": 3}, "conv/direct.comp", "4 waves a SIMD"),
        ({"waves": 7}, "reduce/reduce.comp", "8 waves a SIMD"),
        ({"lanes": 32}, "a", "workgroups of whole waves"),
        ({"loop": dataclasses.replace(LOOP, waited=1)}, "a", "no waited loads beside shared memory"),
    ],
)
def test_rules(changes: dict[str, Any], name: str, rule: str) -> None:
    bad = one(row(**changes), name)
    assert rules.broken(bad) == {name: [rule]}
    assert rules.broken(one(GOOD, name)) == {}
    assert len(rules.problems(None, bad)) == 1
    assert rules.problems(bad, bad) == []  # known
    assert rules.problems(one(row(), name), bad)


def test_support_that_has_just_begun_is_not_judged() -> None:
    bad = dataclasses.replace(one(row(spilled=5)), family="navi31", driver="Mesa 22.3.6")
    assert rules.broken(bad) == {}
    assert rules.broken(dataclasses.replace(bad, driver="Mesa 25.0.7"))


@pytest.mark.parametrize(
    ("changes", "what", "worse"),
    [
        ({"spilled": 2}, "spilled", True),
        ({"waves": 6}, "waves", True),
        ({"waves": 10}, "waves", False),
        ({"lanes": 32}, "lanes used", True),
        ({"loop": dataclasses.replace(LOOP, vectors=330)}, "FMA share", True),
        ({"loop": dataclasses.replace(LOOP, vectors=260)}, "FMA share", False),
        ({"loop": dataclasses.replace(LOOP, waited=2)}, "waited loads", True),
        ({"instructions": 800}, "instructions", False),
    ],
)
def test_changes(changes: dict[str, Any], what: str, worse: bool) -> None:
    (found,) = rules.changes(one(GOOD), one(row(**changes)))
    assert (found.what, found.worse) == (what, worse)
    assert str(found).startswith("worse: " if worse else "other: " if what == "instructions" else "better: ")
    assert bool(rules.problems(one(GOOD), one(row(**changes)))) == worse


def test_small_changes_and_new_kernels_are_none() -> None:
    close = row(instructions=760, loop=dataclasses.replace(LOOP, vectors=303))
    assert rules.changes(one(GOOD), one(close)) == []
    assert rules.changes(one(GOOD, "a"), one(row(waves=4), "b")) == []
    [problem] = rules.problems(one(GOOD, "a"), one(GOOD, "b"))
    assert problem.startswith("has no committed figures: ")
    assert problem.endswith(": b")


def test_loops_are_compared_where_arithmetic_counts() -> None:
    slower = row(loop=dataclasses.replace(LOOP, vectors=400, waited=1))
    assert len(rules.changes(one(GOOD), one(slower))) == 2
    assert rules.changes(one(GOOD, "reduce/softmax.comp"), one(slower, "reduce/softmax.comp")) == []


def test_figures_of_another_driver_are_not_compared() -> None:
    other = one(row(spilled=4, waves=1), driver="Mesa 26.0")
    other.failures["b"] = "no"
    assert rules.problems(one(GOOD), other) == ["does not compile: b: no"]


# ---- the committed figures -------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "measured" / "figures.json"
    assert records.read(file) == ({}, {})
    made, other = one(GOOD), dataclasses.replace(one(row(waves=2, loop=None)), family="polaris10")
    made.failures, made.compiled = {"b": "no"}, 7
    records.write([other, made], {"tile 64x64": {"navi21": 0.5}}, file)
    assert records.read(file) == ({"navi21": made, "polaris10": other}, {"tile 64x64": {"navi21": 0.5}})
    assert sum(line.startswith('"linalg/gemm.comp') for line in file.read_text().splitlines()) == 1


def test_goals_are_shown_before_and_now() -> None:
    text = report.goals([one(GOOD)], {"tile 64x64": {"navi21": 0.5}})
    assert "| tile 64x64 | 88% | 50%, **85%** (0) |" in text
    assert "| tile 32x32 | 75% | -, - |" in text
    assert report.shares([one(GOOD)]) == {"tile 64x64": {"navi21": 0.8533}}


def test_parts_of_a_page_are_written_anew_also_where_nothing_is_yet() -> None:
    page = "<!-- a: written -->\n<!-- end -->\n## B\n<!-- b: written -->\nold\nolder\n<!-- end -->\n"
    filled = "<!-- a: written -->\n1\n2\n<!-- end -->\n## B\n<!-- b: written -->\n3\n<!-- end -->\n"
    assert report.fill(page, {"a": "1\n2", "b": "3"}) == filled
    assert report.fill(filled, {"a": "1\n2", "b": "3"}) == filled


def test_the_page_is_what_the_committed_figures_say() -> None:
    committed, before = records.read()
    page = PAGE.read_text("utf-8")
    assert len(committed) >= 5
    assert {found[2] for found in report.MARKED.finditer(page)} == {"families", "goals", "loops", "worst"}
    assert report.fill(page, report.parts(committed, before)) == page


def test_committed_figures_reach_all_goals_by_name() -> None:
    """A goal whose kernel has another name now would be shown as a dash for ever."""
    committed, _ = records.read()
    missing = [goal.name for goal in rules.GOALS if rules.reached(committed["navi21"], goal) is None]
    assert not missing


# ---- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """The command, with a compiler that gives the committed figures of a few kernels, changed as asked."""
    committed, before = records.read()
    few = dict(list(committed["navi21"].kernels.items())[:5])
    page = tmp_path / "gpus.md"
    page.write_text("<!-- families: written -->\n<!-- end -->\n")
    monkeypatch.setattr(gpu_kernels, "PAGE", page)

    def run(*arguments: str, **changes: Any) -> Result:
        def collected(family: str, *_: Any) -> Collection:
            if family != "navi21":
                raise FamilyMissing("not here")
            kernels = {name: dataclasses.replace(found, **changes) for name, found in few.items()}
            return dataclasses.replace(committed["navi21"], kernels=kernels)

        monkeypatch.setattr(gpu_kernels, "collect", collected)
        monkeypatch.setattr(records, "read", lambda: (dict(committed), before))
        return CliRunner().invoke(gpu_kernels.main, arguments)

    return run


def test_a_check_refuses_what_became_worse(command: Callable[..., Result]) -> None:
    good = command("--check")
    assert good.exit_code == 0, good.output
    assert "polaris10 is left out: not here" in good.output
    bad = command("--check", spilled=3)
    assert bad.exit_code == 1
    assert "PROBLEM breaks the rule of no spilled registers" in bad.output
    assert "PROBLEM worse: spilled 0 -> 3" in bad.output
    assert command(spilled=3).exit_code == 0  # shown, not checked


def test_a_check_of_nothing_says_so(command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    named = command("--check", "--family", "polaris10")
    assert named.exit_code == 1
    assert "no family could be had" in named.output
    monkeypatch.setattr(gpu_kernels, "CHECKED", ("polaris10",))
    nothing = command("--check")
    assert nothing.exit_code == 0
    assert "nothing was checked: no family could be had" in nothing.output


def test_figures_and_page_are_written(
    command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(records, "write", lambda *what: written.extend(what))
    done = command("--write", waves=13)
    assert done.exit_code == 0, done.output
    collections = {one.family: one for one in written[0]}
    assert {found.waves for found in collections["navi21"].kernels.values()} == {13}
    assert len(collections["polaris10"].kernels) > 1000  # as committed
    assert "| navi21 | Radeon RX 6800, RDNA 2 |" in (tmp_path / "gpus.md").read_text()
    assert command("--write", "--kernel", "gemm").exit_code == 2


# ---- the compilers themselves ----------------------------------------------------------------------------


def check(family: str, text: str) -> None:
    try:
        now = collect(family, text)
    except FamilyMissing as error:
        pytest.skip(str(error))
    assert now.compiled
    committed, _ = records.read()
    assert rules.problems(committed.get(family), now) == []


@pytest.mark.full
def test_staged_products_are_no_worse() -> None:
    check("navi21", "gemm shared 64x64")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("family", ["navi21", "polaris10"])
def test_no_kernel_is_worse(family: str) -> None:
    check(family, "")

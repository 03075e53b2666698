"""A sweep ends with the same table whoever computes it, however often it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

import pandas as pd
import pytest
import torch
from conftest import ROOT

from pavlov import montecarlo
from pavlov.montecarlo import SweepFailed, sweep

GRID = {"scale": [1.0, 1 / 3], "seed": [0, 1, 2]}


def scaled(scale, size, keys, values):
    return scale * torch.randn(size, generator=keys, dtype=torch.float64)


def point(scale, seed):
    return montecarlo.estimate(partial(scaled, scale), 100, seed)


def fails_at_one(scale, seed):
    if seed == 1 and scale == 1:
        raise ZeroDivisionError("no")
    return point(scale, seed)


def dies_at_one(scale, seed):
    if seed == 1 and scale == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return point(scale, seed)


def same(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    return a.to_json(double_precision=15) == b.to_json(double_precision=15) and a.equals(b)


@pytest.fixture(scope="module")
def table():
    return sweep(point, GRID)


def test_a_row_holds_its_parameters_and_its_estimate_in_the_order_of_the_grid(table):
    assert list(table.columns) == ["scale", "seed", "mean", "stderr", "trials"]
    assert table[["scale", "seed"]].values.tolist() == [[s, seed] for s in (1.0, 1 / 3) for seed in (0, 1, 2)]
    assert table["mean"][4] == point(1 / 3, 1).mean


def test_outcomes_may_be_named():
    got = sweep(lambda x: {"twice": 2 * x, "draw": point(1.0, x)}, {"x": [0, 3]})
    assert list(got.columns) == ["x", "twice", "draw", "draw_stderr", "draw_trials"]
    assert got["twice"].tolist() == [0, 6]


def test_the_table_does_not_depend_on_the_executor(table):
    assert same(table, sweep(point, GRID, workers=2))
    with ThreadPoolExecutor(3) as threads:
        assert same(table, sweep(point, GRID, executor=threads))


def test_a_cluster_of_dask_gives_the_same_table(table):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert same(table, sweep(point, GRID, executor=client.get_executor()))


def test_finished_points_are_read_and_not_run_again(table, tmp_path):
    file = tmp_path / "sweep.json"
    sweep(point, GRID, file=file)
    kept = json.loads(file.read_text())
    for number in ("1", "5"):
        del kept["rows"][number]
    file.write_text(json.dumps(kept))
    ran = []
    assert same(table, sweep(point, GRID, file=file, progress=lambda done, of: ran.append((done, of))))
    assert ran == [(4, 6), (5, 6), (6, 6)]
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]


SLOW = """
import sys, time
from pavlov.montecarlo import Estimate, estimate, sweep
import torch

def point(x, seed):
    time.sleep(0.2)
    return estimate(lambda n, k, v: torch.randn(n, generator=k, dtype=torch.float64) / (x + 1), 50, seed)

table = sweep(point, {"x": [0, 1, 2, 3], "seed": [0, 1]}, file=sys.argv[1])
print(table.map(lambda v: v.hex() if isinstance(v, float) else v).to_csv())
"""


def test_a_sweep_killed_half_way_ends_with_bitwise_the_same_table(tmp_path):
    def start(file):
        command = [sys.executable, "-c", SLOW, str(tmp_path / file)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole, killed = start("whole.json"), start("killed.json")
    while (
        not (tmp_path / "killed.json").exists() or len(json.loads((tmp_path / "killed.json").read_text())["rows"]) < 3
    ):
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    assert 3 <= len(json.loads((tmp_path / "killed.json").read_text())["rows"]) < 8
    again = start("killed.json")
    outputs = [process.communicate(timeout=60) for process in (whole, again)]
    assert outputs[0] == outputs[1]
    assert outputs[0][1] == "", "no progress is shown where there is no terminal"


def test_a_failed_point_is_reported_and_the_others_are_kept(table, tmp_path):
    with pytest.raises(
        SweepFailed, match=r"1 of 6 points.*\n.*'scale': 1.0, 'seed': 1.*ZeroDivisionError: no"
    ) as failure:
        sweep(fails_at_one, GRID, file=tmp_path / "kept.json")
    assert list(failure.value.errors) == [1]
    assert same(failure.value.table, table.drop(index=1).reset_index(drop=True))
    assert len(json.loads((tmp_path / "kept.json").read_text())["rows"]) == 5


def test_a_dead_worker_costs_its_own_point_only(table):
    with pytest.raises(SweepFailed, match=r"'scale': 1.0, 'seed': 1.*BrokenProcessPool") as failure:
        sweep(dies_at_one, GRID, workers=2)
    assert same(failure.value.table, table.drop(index=1).reset_index(drop=True))


def test_a_broken_pool_of_the_caller_is_reported_and_what_finished_is_kept():
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with pool, pytest.raises(SweepFailed, match="'seed': 1") as failure:
        sweep(dies_at_one, GRID, executor=pool)
    assert len(failure.value.table) + len(failure.value.errors) == 6


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sweep(point, {}), ValueError, "grid must give every parameter"),
        (lambda: sweep(point, {"scale": []}), ValueError, "grid must give every parameter"),
        (lambda: sweep(point, {"seed": [1, 1]}), ValueError, "must not repeat a value"),
        (lambda: sweep(point, {"seed": [[1]]}), TypeError, r"grid\['seed'\] must be a number"),
        (lambda: sweep(point, GRID, workers=0), ValueError, "workers must be at least 1, got 0"),
        (lambda: sweep(lambda x: {"x": 1}, {"x": [1]}), SweepFailed, "must not be named as parameters"),
        (lambda: sweep(lambda x: [1], {"x": [1]}), SweepFailed, "outcome 'mean' must be a number"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("text", ["{", "[]", '{"sweep": {"point": "other", "grid": {}}, "rows": {}}'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="file must"):
        sweep(point, GRID, file=file)
    assert file.read_text() == text

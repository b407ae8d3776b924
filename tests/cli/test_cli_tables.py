"""fit, predict, evaluate, report and inspect, from files to files."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bad_tables import BAD
from command_line import good, refused, run, small_frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cells.csv and its model m.bagwise."""
    folder = tmp_path_factory.mktemp("fitted")
    small_frame().to_csv(folder / "cells.csv", index=False)
    good(
        "fit", folder / "cells.csv", "--bag", "slide", "--label", "diagnosis",
        "--positive", "cancer", "-o", folder / "m.bagwise",
    )  # fmt: skip
    return folder


def test_musk1_in_four_commands_equals_the_python_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bw.datasets.load_musk1().to_frame().to_csv("musk1.csv", index=False)
    columns = ("--bag", "bag_id", "--label", "label")
    good("fit", "musk1.csv", *columns)
    good("predict", "musk1.bagwise", "musk1.csv", *columns[:2])
    shown = json.loads(good("evaluate", "musk1.bagwise", "musk1.csv", *columns, "--json"))
    good("report", "musk1.bagwise", "musk1.csv", *columns)

    bags = bw.Bags.from_frame(pd.read_csv("musk1.csv"))
    model = bw.ProbitVGPMIL(random_state=0).fit(bags)
    expected = bw.metrics.bag_scores(model, bags)
    assert shown["bags"].keys() == expected.keys()
    for name, value in expected.items():
        assert shown["bags"][name] == pytest.approx(value, abs=1e-12), name
    p, std = model.predict_proba(bags, return_std=True)
    predictions = pd.read_csv("musk1.predictions.csv")
    np.testing.assert_array_equal(predictions["bag_id"], bags.ids)
    np.testing.assert_allclose(predictions["p_mean"], p[:, 1], atol=1e-12)
    np.testing.assert_allclose(predictions["p_std"], std, atol=1e-12)
    assert Path("musk1.report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_fit_says_what_it_guessed_and_which_class_is_positive(tmp_path: Path) -> None:
    small_frame().to_csv(tmp_path / "t.csv", index=False)
    result = run(
        "fit", tmp_path / "t.csv", "--positive", "cancer", "-o", tmp_path / "m.bagwise",
        "--label", "diagnosis", "--valid", "0.25", "--seed", "3",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "bag column: 'slide' (guessed" in result.stderr
    assert "left out, not numeric: 'comment'" in result.stderr
    assert "positive class 'cancer'" in result.stderr
    assert "Held-out bags: 4 bags, 2 of class 'cancer'" in result.stdout
    model = bw.load(tmp_path / "m.bagwise")
    assert len(model.metadata_["held_out"]) == 4
    assert model.feature_names_in_.tolist() == ["area", "shade"]


def test_text_labels_need_a_positive_one(fitted: Path) -> None:
    line = refused("fit", fitted / "cells.csv", "--label", "diagnosis", "-o", fitted / "n.bagwise")
    assert "--positive" in line
    assert not (fitted / "n.bagwise").exists()
    assert "none of the labels" in refused(
        "fit", fitted / "cells.csv", "--positive", "ill", "-o", fitted / "n.bagwise"
    )


def test_predictions_are_joined_to_the_users_rows(fitted: Path, tmp_path: Path) -> None:
    original = pd.read_csv(fitted / "cells.csv")
    shuffled = original.sample(frac=1, random_state=5, ignore_index=True)
    shuffled.drop(columns="diagnosis").to_csv(tmp_path / "new.csv", index=False)
    good("predict", fitted / "m.bagwise", tmp_path / "new.csv", "--instances",
         "-o", tmp_path / "out.parquet")  # fmt: skip
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out["slide"].tolist() == shuffled["slide"].tolist()
    assert out["x"].tolist() == shuffled["x"].tolist()
    model = bw.load(fitted / "m.bagwise")
    bags = bw.Bags.from_frame(shuffled[["slide", "area", "shade"]], bag="slide", label=None)
    p, std = model.predict_instance_proba(bags, return_std=True)
    np.testing.assert_allclose(out["p_mean"].to_numpy()[bags.row_index], p[:, 1], atol=1e-12)
    np.testing.assert_allclose(out["p_std"].to_numpy()[bags.row_index], std, atol=1e-12)
    assert set(out["predicted"]) <= {"cancer", "healthy"}


def test_both_ends_of_calibrated_instances_are_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slide = np.repeat(np.arange(24), 5)
    frame = pd.DataFrame(
        {"slide": slide, "label": slide % 2, "area": rng.normal(size=120) + 2 * (slide % 2)}
    ).assign(x=np.tile(np.arange(5), 24), y=0)
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--bag", "slide", "--coords", "x", "y")
    model = tmp_path / "m.bagwise"
    good("fit", tmp_path / "t.csv", *columns, "-o", model, "--set", "n_inducing=10")
    good("predict", model, tmp_path / "t.csv", *columns, "--instances", "-o", tmp_path / "p.csv")
    out = pd.read_csv(tmp_path / "p.csv")
    bags = bw.Bags.from_frame(frame[["slide", "area"]], bag="slide", label=None)
    low, high = bw.load(model).predict_instance_range(bags)
    np.testing.assert_allclose(out["p_low"], low, atol=1e-9)
    np.testing.assert_allclose(out["p_high"], high, atol=1e-9)
    assert (out["p_high"] <= out["bag_p_mean"] + 1e-9).all()
    good(
        *("predict", model, tmp_path / "t.csv", *columns, "--tile-size", "1"),
        *("-o", f"{tmp_path}/tiles/"),
    )
    tiles = json.loads((tmp_path / "tiles" / "3.geojson").read_text())["features"]
    measured = [tile["properties"]["measurements"] for tile in tiles]
    assert [m["p_low"] for m in measured] == pytest.approx(low[15:20].tolist(), abs=1e-9)
    assert [m["p_high"] for m in measured] == pytest.approx(high[15:20].tolist(), abs=1e-9)


def test_bags_come_in_the_order_of_the_table(fitted: Path) -> None:
    text = good("predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", "-")
    lines = [line.split(",")[0] for line in text.splitlines()[1:]]
    assert lines == list(dict.fromkeys(pd.read_csv(fitted / "cells.csv")["slide"]))


def test_standard_input_and_output(fitted: Path) -> None:
    data = (fitted / "cells.csv").read_bytes()
    piped = good("predict", fitted / "m.bagwise", "-", "-o", "-", stdin=data)
    assert piped == good("predict", fitted / "m.bagwise", fitted / "cells.csv", "-o", "-")


def test_text_cells_cannot_become_formulas(fitted: Path) -> None:
    text = good("predict", fitted / "m.bagwise", fitted / "cells.csv", "--instances", "-o", "-")
    assert ",'=1+1," in text
    assert not re.search(r"(^|,)=", text)


def test_geojson_has_one_tile_per_row_in_order(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv")
    one = frame[frame["slide"] == "s03"]
    one.to_csv(tmp_path / "one.csv", index=False)
    out = tmp_path / "one.geojson"
    good("predict", fitted / "m.bagwise", tmp_path / "one.csv", "-o", out, "--tile-size", "2")
    features = json.loads(out.read_text())["features"]
    corners = [f["geometry"]["coordinates"][0][0] for f in features]
    assert corners == one[["x", "y"]].to_numpy().tolist()
    for f in features:
        assert 0 <= f["properties"]["measurements"]["p_mean"] <= 1
        assert f["properties"]["measurements"]["p_std"] >= 0
    assert "e.g. -o tiles/" in refused(
        *("predict", fitted / "m.bagwise", fitted / "cells.csv", "--tile-size", "2"),
        *("-o", tmp_path / "a.geojson"),
    )


def test_a_folder_gets_one_geojson_per_bag(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv")
    command = ("predict", fitted / "m.bagwise", fitted / "cells.csv", "--tile-size", "2")
    good(*command, "-o", f"{tmp_path}/tiles/")
    files = sorted((tmp_path / "tiles").iterdir())
    assert [f.stem for f in files] == sorted(frame["slide"].unique())
    good(*command[:3], "--instances", "-o", tmp_path / "p.csv")
    rows = pd.read_csv(tmp_path / "p.csv")
    for file in files:
        tiles = json.loads(file.read_text())["features"]
        own = rows[rows["slide"] == file.stem]
        corners = [t["geometry"]["coordinates"][0][0] for t in tiles]
        assert corners == own[["x", "y"]].to_numpy().tolist()
        found = [t["properties"]["measurements"]["p_mean"] for t in tiles]
        np.testing.assert_allclose(found, own["p_mean"], rtol=1e-12)
    assert "exists and is not overwritten" in refused(*command, "-o", f"{tmp_path}/tiles/")
    good(*command, "-o", tmp_path / "tiles", "--force")  # a folder that is there needs no slash
    for name in ("../s03", "s03" * 67, "\u2603" * 67):  # 201 bytes each of the latter
        away = frame.assign(slide=frame["slide"].replace("s03", name))
        away.to_csv(tmp_path / "away.csv", index=False)
        assert f"{name!r:.80} cannot be the name of a file" in refused(
            *("predict", fitted / "m.bagwise", tmp_path / "away.csv", "--tile-size", "2"),
            *("-o", f"{tmp_path}/other/"),
        )
        assert not (tmp_path / "other").exists()


def test_predict_ignores_labels_that_are_missing(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv")
    frame["diagnosis"] = None
    frame.to_csv(tmp_path / "new.csv", index=False)
    text = good("predict", fitted / "m.bagwise", tmp_path / "new.csv", "-o", "-")
    assert text.startswith("slide,n_instances,p_mean,p_std,predicted,novelty_p_value\n")


def test_scores_of_bags_the_model_has_seen_say_so(fitted: Path, tmp_path: Path) -> None:
    result = run("evaluate", fitted / "m.bagwise", fitted / "cells.csv")
    assert "16 of these 16 bags have ids that the model was trained on. Their" in result.stderr
    other = tmp_path / "other.csv"
    other.write_bytes((fitted / "cells.csv").read_bytes())
    assert "trained on. If they are" in run("evaluate", fitted / "m.bagwise", other).stderr
    new = pd.read_csv(other).assign(slide=lambda f: "new" + f["slide"])
    new.to_csv(other, index=False)
    assert "trained on" not in run("evaluate", fitted / "m.bagwise", other).stderr
    assert (
        json.loads(good("evaluate", fitted / "m.bagwise", other, "--json"))["bags_trained_on"] == 0
    )


def test_evaluate_prints_a_table_and_json(fitted: Path) -> None:
    text = good("evaluate", fitted / "m.bagwise", fitted / "cells.csv")
    assert "16 bags, 8 of class 'cancer'" in text
    assert "ROC AUC" in text
    scores = json.loads(good("evaluate", fitted / "m.bagwise", fitted / "cells.csv", "--json"))
    low, high = scores["intervals"]["roc_auc"]
    assert low <= scores["bags"]["roc_auc"] <= high
    assert scores["positive"] == "cancer"
    assert scores["instances"] is None


def test_inspect_shows_where_a_model_comes_from(fitted: Path) -> None:
    text = good("inspect", fitted / "m.bagwise")
    words = ("ProbitVGPMIL", "'cancer'", "area, shade", "bag=slide", "cells.csv", "kernel chosen")
    for word in words:
        assert word in text
    found = json.loads(good("inspect", fitted / "m.bagwise", "--json"))
    assert found["features"] == ["area", "shade"]
    assert found["fitted"]["seed"] == 0


def test_models_from_python_work_too(tmp_path: Path) -> None:
    frame = small_frame()
    bags = bw.Bags.from_arrays(
        frame[["area", "shade"]].to_numpy(),
        frame["slide"].to_numpy(),
        y=np.arange(16) % 2,
    )
    bw.ProbitVGPMIL(random_state=0).fit(bags).save(tmp_path / "m.bagwise")
    frame[["slide", "area", "shade"]].to_csv(tmp_path / "t.csv", index=False)
    text = good("predict", tmp_path / "m.bagwise", tmp_path / "t.csv", "-o", "-")
    assert len(text.splitlines()) == 17


@pytest.mark.parametrize("kind", BAD)
def test_bad_tables_end_in_one_line_and_exit_2(kind: str, tmp_path: Path) -> None:
    text, columns, message = BAD[kind]
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    options = [f"--{k}={v if isinstance(v, str) else v[0]}" for k, v in columns.items()]
    line = refused("fit", tmp_path / "t.csv", *options, "-o", tmp_path / "m.bagwise")
    assert re.search(message, line)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_other_mistakes_end_in_one_line_and_exit_2(fitted: Path, tmp_path: Path) -> None:
    model, cells = fitted / "m.bagwise", fitted / "cells.csv"
    common = ("--positive", "cancer", "-o", tmp_path / "n.bagwise")
    assert "nothing.csv" in refused("fit", tmp_path / "nothing.csv")
    assert "no model 'svm'" in refused("fit", cells, "--model", "svm", *common)
    assert "no argument 'depth'" in refused("fit", cells, "--set", "depth=3", *common)
    assert "NAME=VALUE" in refused("fit", cells, "--set", "depth", *common)
    assert "n_inducing" in refused("fit", cells, "--set", "n_inducing=0", *common)
    assert "--coords" in refused("fit", cells, "--z", "x", *common)
    assert "is empty" in refused("predict", _file(tmp_path, "e.bagwise", ""), cells)
    assert "no directory" in refused("predict", model, cells, "-o", tmp_path / "no" / "p.csv")
    assert "use .csv" in refused("predict", model, cells, "-o", tmp_path / "p.xlsx")
    assert "labels must be the model's" in refused(
        "evaluate", model, _file(tmp_path, "l.csv", "slide,label,area,shade\na,9,1,2\n")
    )
    assert "lacks 1 of the 2 features" in refused(
        "predict", model, _file(tmp_path, "f.csv", "slide,area\na,1\n")
    )
    assert "already has the column 'p_mean'" in refused(
        "predict", model, _file(tmp_path, "p.csv", "slide,area,shade,p_mean\na,1,2,3\n"),
        "--instances", "-o", "-",
    )  # fmt: skip


def _file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("command", ["fit", "predict", "report"])
@pytest.mark.parametrize("target", ["cells.csv", "m.bagwise"])
def test_what_is_read_is_never_written_over(fitted: Path, command: str, target: str) -> None:
    table, model = fitted / "cells.csv", fitted / "m.bagwise"
    if (command, target) == ("fit", "m.bagwise"):
        pytest.skip("a fit reads no model")
    before = (fitted / target).read_bytes()
    inputs = [table] if command == "fit" else [model, table]
    asked = ["--label", "diagnosis", "--positive", "cancer"] if command == "fit" else []
    said = refused(command, *inputs, "--bag", "slide", *asked, "-o", fitted / target, "--force")
    assert "would destroy it" in said
    assert (fitted / target).read_bytes() == before


def test_a_compared_model_and_a_list_of_slides_are_never_written_over(fitted: Path) -> None:
    table, model, other = fitted / "cells.csv", fitted / "m.bagwise", fitted / "old.bagwise"
    other.write_bytes(model.read_bytes())
    said = refused("report", model, table, "--compare", other, "-o", other, "--force")
    assert "would destroy it" in said and other.read_bytes() == model.read_bytes()
    slides = _file(fitted, "slides.csv", "slide_id,label\ns,1\n")
    folder = fitted / "features"
    for command, inputs in (
        ("fit", [folder]),
        ("predict", [model, folder]),
        ("suggest", [model, folder]),
    ):
        said = refused(command, *inputs, "--slides", slides, "-o", slides, "--force")
        assert "would destroy it" in said and slides.exists()


@pytest.mark.parametrize("command", ["fit", "predict", "report"])
def test_a_missing_folder_is_noticed_before_any_work(fitted: Path, command: str) -> None:
    table, model = fitted / "cells.csv", fitted / "m.bagwise"
    inputs = [table] if command == "fit" else [model, table]
    # The column does not exist either, which reading the table would show.
    said = refused(command, *inputs, "--bag", "none", "-o", fitted / "nowhere" / "out.csv")
    assert "no directory" in said


def test_nothing_is_overwritten_without_force(fitted: Path, tmp_path: Path) -> None:
    model, cells = fitted / "m.bagwise", fitted / "cells.csv"
    for command in (
        ("fit", cells, "--positive", "cancer", "--label", "diagnosis"),
        ("predict", model, cells),
        ("report", model, cells),
    ):
        out = _file(tmp_path, f"{command[0]}.csv", "mine")
        assert "--force" in refused(*command, "-o", out)
        assert out.read_text() == "mine"
        good(*command, "-o", out, "--force")
        assert out.read_bytes() != b"mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_debug_keeps_the_traceback(tmp_path: Path) -> None:
    result = run("fit", tmp_path / "nothing.csv", "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_a_folder_of_slides(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    lines = ["slide_id,label,case_id"]
    for b in range(12):
        X = rng.normal(size=(5, 3)).astype(np.float32)
        X[0] += 4 * (b % 2)
        with h5py.File(tmp_path / "features" / f"s{b}.h5", "w") as file:
            file["features"], file["coords"] = X, rng.integers(0, 9, (5, 2)) * 256
        lines.append(f"s{b},{b % 2},c{b // 2}")
    slides = _file(tmp_path, "slides.csv", "\n".join(lines) + "\n")
    model = tmp_path / "m.bagwise"
    good("fit", tmp_path / "features", "--slides", slides, "-o", model)
    good("predict", model, tmp_path / "features", "--instances", "-o", tmp_path / "p.csv")
    out = pd.read_csv(tmp_path / "p.csv")
    assert list(out.columns[:4]) == ["slide_id", "instance_id", "x", "y"]
    assert len(out) == 60
    assert (out[["x", "y"]] % 256 == 0).all(axis=None)  # pixels, though the model counts cells
    assert out["x"].max() >= 256
    scores = json.loads(
        good("evaluate", model, tmp_path / "features", "--slides", slides, "--json")
    )
    assert scores["bags"]["n"] == 12
    one = tmp_path / "one"
    one.mkdir()
    (tmp_path / "features" / "s3.h5").rename(one / "s3.h5")
    good("predict", model, one, "-o", tmp_path / "s3.geojson", "--tile-size", 256)
    tiles = json.loads((tmp_path / "s3.geojson").read_text())["features"]
    corners = [tile["geometry"]["coordinates"][0][0] for tile in tiles]
    assert corners == out.loc[out["slide_id"] == "s3", ["x", "y"]].to_numpy().tolist()
    (one / "s3.h5").rename(tmp_path / "features" / "s3.h5")
    lines[3] = "s99,1,c1"
    bad = _file(tmp_path, "bad.csv", "\n".join(lines) + "\n")
    assert "e.g. 's99'" in refused(
        "fit", tmp_path / "features", "--slides", bad, "-o", tmp_path / "n.bagwise"
    )
    assert "--slides" in refused("fit", tmp_path / "features", "-o", tmp_path / "n.bagwise")


LINEAR = {"mirvm": "MIRVM", "MI-logistic": "MILogisticRegression", "RVM": "RVM"}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_models_go_through_all_commands(name: str, fitted: Path, tmp_path: Path) -> None:
    cells, model = fitted / "cells.csv", tmp_path / "m.bagwise"
    out = good("fit", cells, "--model", name, "--label", "diagnosis", "--positive", "cancer",
               "-o", model, "--json")  # fmt: skip
    shown = json.loads(out)
    assert shown["model"] == LINEAR[name]
    assert shown["elbo"] is None and shown["log_evidence"] < 0
    assert len(good("predict", model, cells, "-o", "-").splitlines()) == 17
    assert json.loads(good("evaluate", model, cells, "--json"))["bags"]["n"] == 16
    good("report", model, cells, "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Log evidence" in text
    assert re.search(r"<dt>Scaled weights ± std</dt><dd>.*area [+-][\d.]+ ± [\d.]+", text)
    loaded = bw.load(model)
    found = json.loads(good("inspect", model, "--json"))
    assert loaded.metadata_["classes"] == ["healthy", "cancer"]
    chosen = {f["feature"]: (f["weight"], f["std"], f["supported"]) for f in found["selected"]}
    assert set(chosen) == set(loaded.feature_names_in_[loaded.selected_features_])
    weight, std = loaded.scaled_coef_[0], loaded.scaled_coef_std_[0]
    assert chosen["area"] == (weight, std, loaded.get_support()[0])
    card = good("inspect", model)
    assert re.search(r"selected features +\d of 2, \d surely not 0", card), card
    assert f"area {weight:+.2f} ± {std:.2f}" in card
    assert "ELBO" not in card
    assert re.search(r"fit +\d+ iterations?, converged", card)


def test_model_names_in_help_and_errors(fitted: Path) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m|[│\s]", "", run("fit", "--help").output)
    assert (
        "probit,vgpmil,pg,psi,gamma,large-margin,ising,mirvm,rvm,mi-logistic,oraclassname" in text
    )
    cells = fitted / "cells.csv"
    line = refused(
        "fit",
        cells,
        "--model",
        "multitaskmirvm",
        "--positive",
        "cancer",
        "-o",
        fitted / "x.bagwise",
    )
    assert "use it from Python" in line


def test_inspect_rounds_and_counts(fitted: Path) -> None:
    card = good("inspect", fitted / "m.bagwise")
    kernel = re.search(r"kernel +(.*)", card)
    assert kernel and not re.search(r"\d\.\d{4}", kernel[1])
    assert re.search(r"fit +\d+ iterations?, converged", card)
    said = run("report", fitted / "m.bagwise", fitted / "cells.csv", "-o", fitted / "r.html").stderr
    assert re.search(r"\(\d+ kB\)", said)


FOREIGN = """seen,day,time,price,code,flag,note,score
2024-03-01 10:00,2024-03-01,10:30,0.10,007,TRUE,,-1.50
2024-03-01T10:00:00Z,,,1.,12,no,NA,+2
"""


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize("named", [True, False], ids=["named features", "features without names"])
def test_the_users_cells_are_written_as_they_stand(
    fitted: Path, tmp_path: Path, ending: str, named: bool
) -> None:
    sep = "," if ending == ".csv" else "\t"
    head, *rows = FOREIGN.replace(",", sep).splitlines()
    lines = (fitted / "cells.csv").read_text().replace(",", sep).splitlines()
    if not named:  # all other numeric columns are features then
        head, *rows = (sep.join(line.split(sep)[:3]) for line in (head, *rows))
    table = [f"{lines[0]}{sep}{head}"]
    table += [f"{line}{sep}{rows[i % 2]}" for i, line in enumerate(lines[1:])]
    (tmp_path / f"t{ending}").write_text("\n".join(table) + "\n")
    model = fitted / "m.bagwise"
    if not named:
        loaded = bw.load(model)
        del loaded.feature_names_in_
        loaded.save(model := tmp_path / "m.bagwise")
    out = tmp_path / f"out{ending}"
    good("predict", model, tmp_path / f"t{ending}", "--instances", "-o", out)
    header, *written = out.read_text().splitlines()
    first = header.split(sep).index("seen")
    width = len(head.split(sep))
    for i, line in enumerate(written):
        assert line.split(sep)[first : first + width] == rows[i % 2].split(sep)


def test_files_with_types_get_numbers_but_no_dates(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv").assign(day="2024-03-01", price="0.10", code="007")
    frame.to_csv(tmp_path / "t.csv", index=False)
    good("predict", fitted / "m.bagwise", tmp_path / "t.csv", "--instances",
         "-o", tmp_path / "p.parquet")  # fmt: skip
    out = pd.read_parquet(tmp_path / "p.parquet")
    assert out["day"].tolist() == ["2024-03-01"] * len(out)
    assert out["price"].tolist() == [0.1] * len(out)
    assert out["code"].tolist() == ["007"] * len(out)
    assert out["x"].dtype.kind == "i"


def test_whole_numbers_with_gaps_stay_whole(fitted: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted / "cells.csv")
    frame["case"] = pd.array([2**60 + 1, None] * (len(frame) // 2), dtype="Int64")
    frame.to_parquet(tmp_path / "t.parquet")
    good("predict", fitted / "m.bagwise", tmp_path / "t.parquet", "--instances",
         "-o", tmp_path / "p.csv")  # fmt: skip
    out = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert out["case"].tolist() == [str(2**60 + 1), ""] * (len(frame) // 2)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_row_numbers_are_left_out_and_said(fitted: Path, tmp_path: Path, ending: str) -> None:
    frame = pd.read_csv(fitted / "cells.csv").drop(columns=["x", "y"])
    frame["id"], frame["index"] = range(len(frame)), range(len(frame))
    frame["ImageNumber"] = frame["slide"].factorize()[0] + 1
    frame["conf"] = frame.groupby("slide").cumcount()
    frame.insert(0, "Unnamed: 0", range(len(frame)))
    path = tmp_path / f"t{ending}"
    if ending == ".csv":
        frame.to_csv(path)  # with an index, which is a column without a name
    else:
        frame.to_parquet(path)
    done = run("fit", path, "--positive", "cancer", "-o", tmp_path / "m.bagwise")
    assert done.exit_code == 0, done.stderr
    assert "left out, row numbers or ids by name:" in done.stderr
    assert "left out, counting rows, of all or of a bag: 'conf'" in done.stderr
    for name in ("'Unnamed: 0'", "'id'", "'index'", "'ImageNumber'"):
        assert name in done.stderr.split("row numbers or ids by name:")[1].splitlines()[0]
    assert bw.load(tmp_path / "m.bagwise").feature_names_in_.tolist() == ["area", "shade"]
    assert "left out, not numeric: 'comment'" in done.stderr


def test_names_of_classes_are_printed_as_they_are(tmp_path: Path) -> None:
    frame = small_frame().replace({"diagnosis": {"cancer": "[red]ill", "healthy": "[/] well"}})
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = good(
        *("fit", tmp_path / "t.csv", "--label", "diagnosis", "--positive", "[red]ill"),
        *("--valid", "0.25", "-o", tmp_path / "m.bagwise"),
    )
    assert "2 of class '[red]ill'" in said


def test_weights_of_bags_are_a_column(tmp_path: Path) -> None:
    frame = small_frame()
    frame["trust"] = np.where(frame["slide"] < "s05", 0.5, 2.0)
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = ("fit", tmp_path / "t.csv", "--positive", "cancer", "-o", tmp_path / "m.bagwise")
    weights = '{"cancer": 3}'
    good(*told, "--weight", "trust", "--set", f"class_weight={weights}")
    found = bw.load(tmp_path / "m.bagwise")
    assert found.feature_names_in_.tolist() == ["area", "shade"]
    frame["y"] = 1 * (frame["diagnosis"] == "cancer")
    bags = bw.Bags.from_frame(frame, bag="slide", label="y", features=["area", "shade"])
    per_bag = frame.groupby("slide")["trust"].first()
    model = bw.ProbitVGPMIL(random_state=0, class_weight={1: 3})
    expected = model.fit(bags, sample_weight=per_bag[::-1])
    assert found.elbo_ == pytest.approx(expected.elbo_, rel=1e-9)

    frame.loc[frame["slide"] == "s03", "trust"] = [1.0, 1.0, 2.0]
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = refused(*told, "--force", "--weight", "trust")
    assert "'trust'" in said and "'s03'" in said
    assert "--slides" in refused(*told, "--force", "--weight", "trust", "--slides", "s.csv")
    said = refused(*told, "--force", "--set", 'class_weight={"ill": 3}')
    assert "has the class 'ill'; the classes of the table are 'healthy' and 'cancer'" in said

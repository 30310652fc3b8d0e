"""Models for pictures, videos and lines of text."""

from __future__ import annotations

import pytest
import zoo_checks as checks

from opmark.models.zoo import diffusion, vision
from opmark.models.zoo.entry import ZooModel

MODELS = (*vision.MODELS, *diffusion.MODELS)

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


@pytest.fixture(autouse=True)
def require_package(request: pytest.FixtureRequest) -> None:
    model = request.node.callspec.params.get("model") if hasattr(request.node, "callspec") else None
    if isinstance(model, ZooModel) and model.needs:
        pytest.importorskip(model.needs)


@each_model
def test_a_model_has_the_published_number_of_parameters(model: ZooModel) -> None:
    assert checks.count_parameters(model) == model.parameters


@each_model
def test_outputs_follow_the_inputs(model: ZooModel) -> None:
    checks.check_outputs_follow_inputs(model, checks.small_params(model))
    checks.check_every_input_matters(model, checks.small_params(model))


@each_model
def test_precisions_differ(model: ZooModel) -> None:
    checks.check_precisions_differ(model, checks.small_params(model))


@each_model
def test_a_model_can_be_exported(model: ZooModel) -> None:
    checks.check_exports(model, checks.small_params(model))


@each_model
def test_rows_of_a_batch_are_independent(model: ZooModel) -> None:
    checks.check_rows_are_independent(model, checks.small_params(model))


@each_model
def test_a_model_survives_the_meta_device(model: ZooModel) -> None:
    checks.check_survives_meta(model, checks.small_params(model))

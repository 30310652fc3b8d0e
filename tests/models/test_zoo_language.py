"""Language models, recommendation and structures of the zoo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zoo_checks as zoo  # noqa: E402

from opmark.models.zoo import branches, language, recommendation, structures  # noqa: E402
from opmark.models.zoo.entry import ZooModel  # noqa: E402

MODELS = (*language.MODELS, *recommendation.MODELS, *structures.MODELS, *branches.MODELS)
DECODERS = [model for model in MODELS if model.stages]
CASES = [(model, stage) for model in MODELS for stage in model.stages or ("",)]


def _name(value: Any) -> str:
    return value.name if isinstance(value, ZooModel) else value or "whole"


each_model = pytest.mark.parametrize("model", MODELS, ids=_name)
each_case = pytest.mark.parametrize(("model", "stage"), CASES, ids=_name)
each_decoder = pytest.mark.parametrize("model", DECODERS, ids=_name)


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    arguments = getattr(request.node, "callspec", None)
    model = arguments.params.get("model") if arguments else None
    if model is not None and model.needs:
        pytest.importorskip(model.needs)


def _params(model: ZooModel, stage: str, **more: Any) -> dict[str, Any]:
    return zoo.small_params(model, **({"stage": stage} if stage else {}), **more)


@each_model
def test_the_number_of_parameters_at_full_size_is_the_published_one(model: ZooModel) -> None:
    assert zoo.count_parameters(model) == model.parameters


@each_case
def test_outputs_move_with_the_inputs(model: ZooModel, stage: str) -> None:
    zoo.check_outputs_follow_inputs(model, _params(model, stage))


@pytest.mark.parametrize("name", ["bert-base", "albert", "roberta", "deberta", "roformer"])
def test_outputs_of_deep_networks_move_too(name: str) -> None:
    model = next(one for one in MODELS if one.name == name)
    pytest.importorskip(model.needs)
    deep = replace(model, small={**model.small, "num_hidden_layers": 12, "max_position_embeddings": 512})
    zoo.check_outputs_follow_inputs(deep, zoo.small_params(deep, seq=384))


@each_model
def test_every_input_takes_part(model: ZooModel) -> None:
    constant = ["attention_mask", *(["token_type_ids"] if model.name == "roberta" else [])]
    zoo.check_every_input_matters(model, zoo.small_params(model), *constant)


@each_case
def test_half_precision_is_visible_against_float64(model: ZooModel, stage: str) -> None:
    zoo.check_precisions_differ(model, _params(model, stage))


@pytest.mark.filterwarnings("ignore:The tensor attributes self.recurrent._flat_weights")
@each_case
def test_an_exported_program_computes_the_same(model: ZooModel, stage: str) -> None:
    zoo.check_exports(model, _params(model, stage))


@each_case
def test_torch_compile_captures_one_whole_graph(model: ZooModel, stage: str) -> None:
    zoo.check_compiles(model, _params(model, stage))


@each_model
def test_swapped_rows_give_swapped_outputs(model: ZooModel) -> None:
    zoo.check_rows_are_independent(model, zoo.small_params(model))


@each_case
def test_a_network_made_on_meta_computes_the_same(model: ZooModel, stage: str) -> None:
    zoo.check_survives_meta(model, _params(model, stage))


@pytest.mark.parametrize("name", ["bert-base", "albert", "roberta", "deberta"])
def test_masked_tokens_do_not_count(name: str) -> None:
    pytest.importorskip("transformers")
    model = next(one for one in MODELS if one.name == name)
    params = zoo.small_params(model)
    network, inputs, others = zoo.built(model, params), *(zoo.make_inputs(model, params, seed) for seed in (1, 2))
    inputs["attention_mask"][:, 20:] = 0
    changed = {**inputs, "input_ids": torch.cat((inputs["input_ids"][:, :20], others["input_ids"][:, 20:]), 1)}
    for one, other in zip(zoo.outputs_of(network, inputs), zoo.outputs_of(network, changed), strict=True):
        assert torch.allclose(one[:, :20], other[:, :20], atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "stable-diffusion-text-encoder", "transformer-decoder"])
@pytest.mark.parametrize("exported", [False, True], ids=["eager", "exported"])
def test_a_token_does_not_see_later_ones(name: str, exported: bool) -> None:
    model = next(one for one in MODELS if one.name == name)
    if model.needs:
        pytest.importorskip(model.needs)
    params = zoo.small_params(model)
    network, inputs, others = zoo.built(model, params), *(zoo.make_inputs(model, params, seed) for seed in (1, 2))
    if exported:
        with torch.no_grad():
            network = torch.export.export(network, tuple(inputs.values())).module()
    first = next(iter(inputs))
    changed = {**inputs, first: torch.cat((inputs[first][:, :10], others[first][:, 10:]), 1)}
    one, other = zoo.outputs_of(network, inputs)[0], zoo.outputs_of(network, changed)[0]
    assert torch.allclose(one[:, :10], other[:, :10], atol=1e-5)
    assert (one[:, 10:] - other[:, 10:]).abs().max() > 0.1


def test_gpt2_computes_what_transformers_computes() -> None:
    pytest.importorskip("transformers")
    model = next(one for one in MODELS if one.name == "gpt2")
    params = zoo.small_params(model)
    network, inputs = zoo.built(model, params), zoo.make_inputs(model, params, 1)
    with torch.no_grad():
        assert torch.allclose(network(*inputs.values()), network.model(**inputs).logits, atol=1e-5)


@each_decoder
def test_a_decode_step_equals_reading_the_whole_text(model: ZooModel) -> None:
    params = _params(model, "decode", batch=3)
    network, whole = zoo.built(model, params), zoo.built(model, {**params, "stage": "prefill"})
    token = zoo.make_inputs(model, params, 1)["input_ids"]
    text = torch.cat((network.context_ids(3, params["seq"]), token), 1)
    expected = zoo.outputs_of(whole, {"input_ids": text})[0]
    for _ in range(2):
        assert torch.allclose(zoo.outputs_of(network, {"input_ids": token})[0], expected, atol=1e-4)


@each_decoder
def test_contexts_do_not_depend_on_row_and_batch(model: ZooModel) -> None:
    network = zoo.construct(model, model.small)
    ids = network.context_ids(3, 32)
    assert torch.equal(ids, network.context_ids(1, 32).expand(3, 32))
    assert len(ids[0].unique()) > 1


@each_decoder
def test_cache_bytes_are_those_of_the_buffers(model: ZooModel) -> None:
    params = _params(model, "decode", dtype="bfloat16")
    network = zoo.built(model, params)
    found = sum(one.nbytes for name, one in network.named_buffers() if name.endswith((".keys", ".values")))
    assert language.cache_bytes(model.small, params) == found


@each_decoder
def test_logits_equal_those_of_transformers(model: ZooModel) -> None:
    transformers = pytest.importorskip("transformers")
    config, kind = model.small, "Glm" if model.name.startswith("chatglm") else "Llama"
    more = {"partial_rotary_factor": 0.5, "pad_token_id": 0, "eos_token_id": 2} if kind == "Glm" else {}
    theirs = getattr(transformers, f"{kind}ForCausalLM")(
        getattr(transformers, f"{kind}Config")(
            vocab_size=config["vocab"],
            hidden_size=config["hidden"],
            intermediate_size=config["ffn"],
            num_hidden_layers=config["layers"],
            num_attention_heads=config["heads"],
            num_key_value_heads=config["kv_heads"],
            head_dim=config["hidden"] // config["heads"],
            attention_bias=config["qkv_bias"],
            rms_norm_eps=1e-5,
            max_position_embeddings=config["positions"],
            tie_word_embeddings=False,
            **more,
        )
    ).eval()
    params = zoo.small_params(model)
    network = zoo.built(model, params)
    assert sum(one.numel() for one in theirs.parameters()) == sum(one.numel() for one in network.parameters())
    sizes = [config["heads"], config["kv_heads"], config["kv_heads"]]
    sizes = [size * (config["hidden"] // config["heads"]) for size in sizes]
    with torch.no_grad():
        theirs.model.embed_tokens.weight.copy_(network.embedding.weight)
        theirs.model.norm.weight.copy_(network.norm.weight)
        theirs.lm_head.weight.copy_(network.head.weight)
        for their, ours in zip(theirs.model.layers, network.layers, strict=True):
            their.input_layernorm.weight.copy_(ours.attention_norm.weight)
            their.post_attention_layernorm.weight.copy_(ours.ffn_norm.weight)
            their.self_attn.o_proj.weight.copy_(ours.attention.out.weight)
            their.mlp.down_proj.weight.copy_(ours.down.weight)
            for kinds, ours_of_kind in (("weight", ours.attention.qkv.weight), ("bias", ours.attention.qkv.bias)):
                if ours_of_kind is not None:
                    for name, part in zip("qkv", ours_of_kind.split(sizes), strict=True):
                        getattr(getattr(their.self_attn, f"{name}_proj"), kinds).copy_(part)
            if kind == "Glm":
                their.mlp.gate_up_proj.weight.copy_(ours.gate_up.weight)
            else:
                gate, up = ours.gate_up.weight.chunk(2)
                their.mlp.gate_proj.weight.copy_(gate)
                their.mlp.up_proj.weight.copy_(up)
        ids = zoo.make_inputs(model, params, 1)["input_ids"]
        expected = theirs(ids, use_cache=False).logits[:, -1]
        assert torch.allclose(network(ids), expected, atol=1e-4)

"""The suite `llm`: its shapes follow from each model's published configuration."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite
from opmark.plugin.registry import operator
from opmark.schema import Case, Workload

BATCHES = {1, 2, 4, 8, 16, 32, 64, 128, 256}


@dataclass(frozen=True)
class Config:
    """Values of a config.json."""

    repository: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    dense: int = 0
    """intermediate_size; 0 if every layer has experts."""
    experts: int = 0
    topk: int = 0
    expert: int = 0
    longest: int = 8192
    gated: str = "swiglu"

    @property
    def projections(self) -> set[tuple[int, int]]:
        """Return (features in, features out) of a layer's products."""
        width = self.heads * self.head_dim
        attention = {(self.hidden, width + 2 * self.kv_heads * self.head_dim), (width, self.hidden)}
        return attention | ({(self.hidden, 2 * self.dense), (self.dense, self.hidden)} if self.dense else set())


MODELS = {
    "llama-3.1-8b": Config("meta-llama/Llama-3.1-8B", 4096, 32, 8, 128, 128256, 14336),
    "llama-3.1-70b": Config("meta-llama/Llama-3.1-70B", 8192, 64, 8, 128, 128256, 28672),
    "mistral-7b": Config("mistralai/Mistral-7B-v0.3", 4096, 32, 8, 128, 32768, 14336),
    "mixtral-8x7b": Config("mistralai/Mixtral-8x7B-v0.1", 4096, 32, 8, 128, 32000, experts=8, topk=2, expert=14336),
    "qwen2.5-7b": Config("Qwen/Qwen2.5-7B", 3584, 28, 4, 128, 152064, 18944),
    "qwen3-30b-a3b": Config("Qwen/Qwen3-30B-A3B", 2048, 32, 4, 128, 151936, experts=128, topk=8, expert=768),
    "gemma-2-9b": Config("google/gemma-2-9b", 3584, 16, 8, 256, 256000, 14336, gated="geglu"),
    "phi-3-mini": Config("microsoft/Phi-3-mini-4k-instruct", 3072, 32, 32, 96, 32064, 8192, longest=4096),
    "gpt-oss-20b": Config("openai/gpt-oss-20b", 2880, 64, 8, 64, 201088, experts=32, topk=4, expert=2880),
}
DEEPSEEK = "deepseek-v3"
EXPERTS = {name: (c.hidden, c.expert, c.experts, c.topk, 1) for name, c in MODELS.items() if c.experts}
EXPERTS[DEEPSEEK] = (7168, 2048, 256, 8, 8)

every_model = pytest.mark.parametrize("model", [*MODELS, DEEPSEEK])
every_grouped_query_model = pytest.mark.parametrize("model", MODELS)
both_phases = pytest.mark.parametrize("phase", ["prefill", "decode"])


@pytest.fixture(scope="module")
def workload() -> Workload:
    return suite("llm")


@pytest.fixture(scope="module")
def cases(workload) -> list[Case]:
    return expand(workload, operator)


def of(cases: list[Case], *tags: str, op: str = "") -> list[Case]:
    return [case for case in cases if set(tags) <= set(case.tags) and op in ("", case.op)]


def tokens(case: Case) -> int:
    """Return the number of new tokens of a call."""
    p = case.params
    if "batch" in p:
        return p["batch"] * p["q_len"]
    return p["shape"][0] if "shape" in p else p.get("num_tokens", p.get("M"))


def products(cases: list[Case]) -> set[tuple[int, int]]:
    return {(case.params["K"], case.params["N"]) for case in cases}


def test_there_are_at_least_six_models(cases):
    kinds = {"llm", "prefill", "decode", "gemm", "attention", "norm", "activation", "moe"}
    models = {tag for case in cases for tag in case.tags} - kinds
    assert models == {*MODELS, DEEPSEEK}
    assert len(models) >= 6


def test_every_entry_names_the_configurations_of_its_models(workload):
    names = {model: config.repository for model, config in MODELS.items()} | {DEEPSEEK: "deepseek-ai/DeepSeek-V3"}
    for entry in workload.cases:
        models = [tag for tag in entry.tags if tag in names]
        assert entry.source.split("; ") == [f"{names[model]} config.json" for model in models]
        assert len({"prefill", "decode"} & set(entry.tags)) == 1


def test_no_case_stands_in_two_entries(workload, cases):
    """The second would be dropped together with its tags."""
    assert sum(len(expand(Workload(1, "one", [entry]), operator)) for entry in workload.cases) == len(cases)


@every_model
@both_phases
@pytest.mark.parametrize("kind", ["gemm", "attention", "norm"])
def test_every_model_has_every_kind_in_both_phases(cases, model, phase, kind):
    assert of(cases, model, phase, kind)


@every_model
def test_batches_are_1_to_256(cases, model):
    found = of(cases, model, "decode")
    for op in {case.op for case in found}:
        assert {tokens(case) for case in found if case.op == op} == BATCHES, op


@every_model
def test_prompts_fit_the_model(cases, model):
    longest = MODELS[model].longest if model in MODELS else 8192
    found = of(cases, model, "prefill")
    for op in {case.op for case in found}:
        assert {tokens(case) for case in found if case.op == op} == {2048, longest}, op
    for case in of(cases, model, "attention"):
        assert case.params["cache_len"] + case.params["q_len"] in (2048, longest)


@every_grouped_query_model
def test_projections_follow_from_the_heads(cases, model):
    config = MODELS[model]
    assert products(of(cases, model, "prefill", "gemm")) == config.projections
    last = {(config.hidden, config.vocabulary)}
    assert products(of(cases, model, "decode", "gemm")) == config.projections | last


@every_grouped_query_model
@both_phases
def test_attention_has_the_heads_of_the_model(cases, model, phase):
    config, found = MODELS[model], of(cases, model, phase, "attention")
    attends = "flash_attention" if phase == "prefill" else "flash_decoding"
    assert {case.op for case in found} == {attends, "rotary_embedding", "store_kv_cache"}
    for case in found:
        heads = tuple(case.params[name] for name in ("q_heads", "kv_heads", "head_dim"))
        assert heads == (config.heads, config.kv_heads, config.head_dim)
        assert case.params["mode"] == phase


@every_grouped_query_model
@both_phases
def test_norms_and_activations_have_the_sizes_of_the_model(cases, model, phase):
    config = MODELS[model]
    assert {case.params["shape"][1] for case in of(cases, model, phase, op="rms_norm")} == {config.hidden}
    assert {case.params["hidden_size"] for case in of(cases, model, phase, op="add_rms_norm")} <= {config.hidden}
    gated = of(cases, model, phase, "activation")
    assert {(case.op, case.params["shape"][1]) for case in gated} == (
        {(config.gated, 2 * config.dense)} if config.dense else set()
    )


@pytest.mark.parametrize("model", EXPERTS)
@both_phases
def test_experts_have_the_sizes_of_the_model(cases, model, phase):
    hidden, size, experts, topk, ranks = EXPERTS[model]
    found = of(cases, model, phase, "moe")
    chooses = "group_topk" if model == DEEPSEEK else "moe_softmax_topk"
    does = {"moe_group_gemm", "moe_swiglu", "moe_gather", "moe_mlp"}
    assert {case.op for case in found} == {"moe_gating_gemm", chooses, *does}
    for case in found:
        p = case.params
        assert (p["num_experts"], p.get("topk", topk), p.get("ep_size", ranks)) == (experts, topk, ranks)
    grouped = {(c.params["hidden_size"], c.params["new_hidden_size"]) for c in of(found, op="moe_group_gemm")}
    assert grouped == {(hidden, 2 * size), (size, hidden)}
    assert {c.params["hidden_size"] for c in of(found, op="moe_swiglu")} == {size}
    assert {c.params["hidden_size"] for c in found if c.op in ("moe_gating_gemm", "moe_gather")} == {hidden}
    assert {(c.params["hidden_size"], c.params["intermediate_size"]) for c in of(found, op="moe_mlp")} == {
        (hidden, size)
    }


def test_only_models_with_experts_have_cases_of_experts(cases):
    assert {tag for case in of(cases, "moe") for tag in case.tags} & {*MODELS, DEEPSEEK} == set(EXPERTS)


def test_deepseek_has_latent_attention(cases):
    heads, rank, rope, nope, value, hidden = 128, 512, 64, 128, 128, 7168
    found = of(cases, DEEPSEEK, "attention")
    assert {case.op for case in found} == {"mla_prefill", "mla_decode", "rotary_embedding"}
    for case in found:
        p = case.params
        if case.op == "rotary_embedding":
            assert (p["q_heads"], p["kv_heads"], p["head_dim"]) == (heads, 1, rope)
        else:
            assert (p["heads"], p["kv_lora_rank"], p["rope_dim"], p["nope_dim"]) == (heads, rank, rope, nope)
            assert p.get("v_dim", value) == value
    expected = {(hidden, 1536), (1536, heads * (nope + rope)), (hidden, rank + rope), (heads * value, hidden)}
    expected |= {(hidden, 2 * size) for size in (18432, 2048)} | {(size, hidden) for size in (18432, 2048)}
    assert products(of(cases, DEEPSEEK, "prefill", "gemm")) == expected
    assert products(of(cases, DEEPSEEK, "decode", "gemm")) == expected | {(hidden, 129280)}


def test_deepseek_chooses_among_groups(cases):
    for case in of(cases, DEEPSEEK, op="group_topk"):
        assert [case.params[name] for name in ("groups", "topk_groups", "scale")] == [8, 4, 2.5]


def test_everything_is_bfloat16_but_the_scores_of_experts(cases):
    assert {case.op for case in cases if case.params["dtype"] != "bfloat16"} == {"moe_softmax_topk", "group_topk"}


def test_every_case_has_inputs_and_a_cost(cases):
    for case in cases:
        found = operator(case.op)
        cost = found.phase_cost(case.params, case.phase, case.wrt)
        assert cost is not None, case
        assert cost.bytes_read > 0, case
        assert cost.bytes_written > 0, case
        assert found.inputs(case.params), case
        computes = {"gemm", "attention", "norm", "activation"} & set(case.tags) and case.op != "store_kv_cache"
        assert cost.flops or not computes, case

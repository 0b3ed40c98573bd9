"""TRL offline, with a tiny random Llama: GRPO through the rewriter is TRL's, SPO differs and learns; its traps."""

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import warnings

import pytest
import torch
from hosting import are_equal, are_finite, parameters_of, require_host, run_example

require_host("trl")

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from spo.errors import SpoError
from spo.integrations.trl import SPOTrainer, is_on_policy
from spo.objectives import OBJECTIVES, Objective

WORDS = ["<pad>", "<eos>", *(f"w{number}" for number in range(14))]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>")


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokens = {"vocab_size": len(WORDS), "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(**sizes, **tokens, max_position_embeddings=32))


def count_w3(completions: list[str], **_) -> list[float]:
    return [float(text.split().count("w3")) for text in completions]


def make(trainer: type[GRPOTrainer], out, steps: int = 6, objective: dict | None = None, **changes) -> GRPOTrainer:
    settings = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "num_iterations": 3,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "max_steps": steps,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "bf16": False,
        "seed": 1,
    }
    prompts = Dataset.from_dict({"prompt": ["w0 w1", "w4 w5", "w6 w7", "w8 w9"] * 8})
    args = GRPOConfig(output_dir=str(out), **settings | changes)
    kwargs = {"model": model(), "reward_funcs": count_w3, "train_dataset": prompts, "processing_class": tokenizer()}
    return trainer(args=args, **kwargs, **(objective or {}))


def train(trainer: type[GRPOTrainer], out, **settings) -> GRPOTrainer:
    made = make(trainer, out, **settings)
    made.train()
    return made


def weights_of(trainer: GRPOTrainer) -> list[torch.Tensor]:
    return parameters_of(trainer.model)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_grpo_through_the_rewriter_is_the_hosts(loss_type, tmp_path):
    options = {"loss_type": loss_type, "epsilon_high": 0.28 if loss_type == "dapo" else None}
    host = train(GRPOTrainer, tmp_path, **options)
    through = train(SPOTrainer, tmp_path, objective={"objective": "ppo-clip"}, **options)
    ours = train(SPOTrainer, tmp_path, **options)
    assert are_equal(weights_of(host), weights_of(through))
    assert not are_equal(weights_of(host), weights_of(ours)) and are_finite(weights_of(ours))
    logged = [row for row in ours.state.log_history if "loss" in row]
    assert logged[0]["ratio_deviation"] == 0 < logged[-1]["ratio_deviation"] <= logged[-1]["ratio_deviation_sample_max"]


def test_with_one_iteration_spo_is_grpo_and_says_so(tmp_path):
    host = train(GRPOTrainer, tmp_path, steps=2, num_iterations=1)
    with pytest.warns(UserWarning, match="the ratio is always 1 .* set num_iterations above 1"):
        ours = train(SPOTrainer, tmp_path, steps=2, num_iterations=1)
    assert are_equal(weights_of(host), weights_of(ours))


@pytest.mark.parametrize(
    "iterations,generation,accumulated,is_one", [(1, 1, 1, True), (1, 2, 4, True), (2, 1, 1, False), (1, 2, 3, False)]
)
def test_whether_the_ratio_can_leave_1(iterations, generation, accumulated, is_one, tmp_path):
    """Generation every second of three accumulated batches leaves a step between the two of every other one."""
    args = GRPOConfig(
        output_dir=str(tmp_path),
        num_iterations=iterations,
        steps_per_generation=generation,
        gradient_accumulation_steps=accumulated,
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=8,
    )
    assert is_on_policy(args) is is_one


def test_spo_learns_resumes_and_its_checkpoint_is_the_hosts(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 24, "num_iterations": 2}
    ours = train(SPOTrainer, tmp_path, steps=24, **settings)
    rewards = [row["reward"] for row in ours.state.log_history if "reward" in row]
    assert sum(rewards[-4:]) > sum(rewards[:4]) + 1
    for trainer in (SPOTrainer, GRPOTrainer):
        again = make(trainer, tmp_path, steps=25, **settings | {"save_strategy": "no"})
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-24"))
        assert again.state.global_step == 25 and are_finite(weights_of(again))


def test_what_has_another_objective_is_refused(tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for changes, sentence in (
            ({"loss_type": "sapo"}, "loss_type 'sapo' has an objective of its own; accepted: grpo, "),
            ({"use_liger_kernel": True}, "use_liger_kernel computes GRPO's loss in a kernel of its own"),
            ({"delta": 4.0}, "delta 4.0 clips the ratio before the objective sees it"),
            ({"objective": {"objective": "espo"}}, "objective 'espo' does not fit into trl"),
            ({"objective": {"objective": "weighed"}, "importance_sampling_level": "sequence"}, "weighs tokens"),
        ):
            weighed = Objective("weighed", lambda ratio, advantage, old_log_prob: ratio * advantage)
            monkeypatch.setitem(OBJECTIVES, "weighed", weighed)
            monkeypatch.setattr(GRPOTrainer, "compute_liger_loss", None, raising=False)  # releases before 1.13 have it
            with pytest.raises(SpoError, match=sentence):
                make(SPOTrainer, tmp_path, **changes)


def test_the_old_log_probability_reaches_an_objective(tmp_path, monkeypatch):
    seen = []

    def weighed(ratio, advantage, old_log_prob, *, epsilon: float = 0.2):
        seen.append((ratio.shape, old_log_prob.shape, float(old_log_prob.max()) <= 0))
        return ratio * advantage

    monkeypatch.setitem(OBJECTIVES, "weighed", Objective("weighed", weighed))
    train(SPOTrainer, tmp_path, steps=2, objective={"objective": "weighed"})
    assert seen and all(ratio == old and below for ratio, old, below in seen)


def test_the_pages_example_runs(tmp_path):
    short = f"num_iterations=4, output_dir={str(tmp_path)!r}, max_steps=2, max_completion_length=4, use_cpu=True, "
    short += "bf16=False, report_to='none', save_strategy='no', disable_tqdm=True), processing_class=tokens"
    prompts = Dataset.from_dict({"prompt": ["w0 w1", "w4 w5"] * 8})
    given = {"model": model(), "reward": count_w3, "prompts": prompts, "tokens": tokenizer()}
    trainer = run_example("TRL", {"num_iterations=4)": short}, **given)["trainer"]
    assert trainer.state.global_step == 2

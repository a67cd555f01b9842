"""Decoding options: what does not fit is refused by its name, with what was probably meant."""

from typing import Any

import pytest

from qkv.config import override, to_toml
from qkv.errors import InputError
from qkv.search.options import GenerateConfig


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("beem", "beams"),
        ("num_beams", "beams"),
        ("num_return_sequences", "n_best"),
        ("do_sample", "sample"),
        ("max_new_tokens", "max_length"),
        ("no_repeat_ngram_size", "no_repeat"),
        ("lenght_penalty", "length_penalty"),
        ("topk", "top_k"),
        ("early_stopping", "stopping"),
    ],
)
def test_an_unknown_option_is_named_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"^Unknown decoding option '{name}'. Did you mean '{meant}'?"):
        GenerateConfig.of({name: 3})
    with pytest.raises(InputError, match=f"^run.toml: Unknown decoding option '{name}'"):
        GenerateConfig.of({name: 3}, "run.toml")


def test_an_option_unlike_any_gets_the_list() -> None:
    with pytest.raises(InputError, match="Known: beams, n_best, max_length"):
        GenerateConfig.of({"xyz": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "beams must be at least 1, not 0"),
        ({"n_best": 2}, "n_best 2 needs at least as many beams, not 1; or sample"),
        ({"beams": 3, "n_best": 4}, "n_best 4 needs at least as many beams, not 3"),
        ({"beams": 4, "sample": True}, "Choose one: sample, or beams = 4"),
        ({"min_length": 10, "max_length": 10}, "min_length 10 leaves no room"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"sample": True, "top_p": 1.5}, "top_p is a probability"),
        ({"sample": True, "top_p": 0.0}, "top_p must be a number above 0"),
        ({"sample": True, "top_k": 0}, "top_k must be at least 1"),
        ({"sample": True, "temperature": 0.0}, "temperature must be a number above 0"),
        ({"temperature": 0.5}, "temperature is for sampling: add sample"),
        ({"top_k": 5}, "top_k is for sampling"),
        ({"repetition_penalty": -1.0}, "repetition_penalty must be a number above 0"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty must be a number above 0"),
        ({"no_repeat": -1}, "no_repeat must be at least 0"),
        ({"coverage_penalty": -0.1}, "coverage_penalty must be at least 0"),
        ({"length_penalty": float("inf")}, "length_penalty is an exponent, from -10 to 10, not inf"),
        ({"length_penalty": float("nan")}, "length_penalty is an exponent, from -10 to 10, not nan"),
        ({"stopping": "nevr"}, "Unknown stopping 'nevr'. Did you mean 'never'?"),
        ({"length_formula": "gnmd"}, "Unknown length_formula 'gnmd'. Did you mean 'gnmt'?"),
        ({"beams": "many"}, "beams takes a whole number, not 'many'"),
        ({"max_ratio": 0.0}, "max_ratio must be a number above 0"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        GenerateConfig.of(options)
    assert message in str(caught.value)


def test_the_longest_text_follows_the_source() -> None:
    config = GenerateConfig(max_length=100, max_ratio=1.5)
    assert [config.limit(n) for n in (1, 3, 10, 60, 1000, None)] == [12, 15, 25, 100, 100, 100]
    assert GenerateConfig(max_length=100).limit(5) == 100
    assert GenerateConfig(max_length=100, min_length=40, max_ratio=1.0).limit(5) == 41  # and there is room for the end


def test_rows_of_a_source() -> None:
    assert GenerateConfig().hypotheses == 1
    assert GenerateConfig(beams=5, n_best=2).hypotheses == 5
    assert GenerateConfig(sample=True, n_best=3).hypotheses == 3


def test_it_is_written_and_read_like_every_config() -> None:
    config = GenerateConfig(sample=True, top_k=5, temperature=0.7)
    assert 'stopping = "estimate"' in to_toml(config)
    assert override(config, ["top_k=7"]).top_k == 7

"""Counters in the metrics pages of engines."""

from blockdraft.bench.engine_metrics import DraftCounters, counters_since, parse_page, read_metrics

VLLM = """
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a \\"b\\" {c}"} 40.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a \\"b\\" {c}"} 2.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 1.6e+02 1712345678000
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 84
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 30
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 54
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e9
a line that is none
vllm:broken{x="1"} notanumber
vllm:nan NaN
"""


def test_counters_of_one_model_among_others() -> None:
    read = read_metrics(VLLM, "m")
    assert read.counters == DraftCounters("vllm:", 40, 160, 84, (54, 30))
    assert read.has_engine_names and read.gauges is None and read.verifications is None
    assert "vllm:broken" not in parse_page(VLLM) and "vllm:nan" not in parse_page(VLLM)
    label = parse_page(VLLM)["vllm:spec_decode_num_drafts_total"][0].labels["model_name"]
    assert label == 'a \\"b\\" {c}'


def test_counters_of_all_models_where_none_has_the_name() -> None:
    read = read_metrics(VLLM, "alias")
    assert read.counters is not None and read.counters.drafts == 82


def test_llamacpp_has_no_labels_but_positions() -> None:
    head = "llamacpp:spec_decode_num_"
    page = f"{head}drafts_total 3\n{head}draft_tokens_total 21\n{head}accepted_tokens_total 5\n"
    page += f'{head}accepted_tokens_per_pos_total{{position="2"}} 1\n'
    assert read_metrics(page, "m").counters == DraftCounters("llamacpp:", 3, 21, 5, (0, 0, 1))


def test_gauges_say_nothing_before_the_first_draft() -> None:
    page = "sglang:spec_accept_length 0.0\nsglang:spec_verify_calls_total 0\n"
    read = read_metrics(page, "m")
    assert read.gauges is None and read.has_engine_names
    read = read_metrics('trtllm:spec_accept_length{a="b"} 2.5\n', "m")
    assert read.gauges is not None and read.gauges.accept_length == 2.5


def test_pages_that_say_nothing() -> None:
    for text in ("", "[]", "<html>", "other:thing 3\n"):
        assert not read_metrics(text, "m").has_engine_names


def test_differences_and_a_restart() -> None:
    before = DraftCounters("vllm:", 10, 40, 20, (12, 8))
    after = DraftCounters("vllm:", 15, 60, 31, (17, 12, 2))
    assert counters_since(before, after) == DraftCounters("vllm:", 5, 20, 11, (5, 4, 2))
    assert counters_since(after, before) is None

"""The manifests of deploy/scaling: they parse, and start engines as launch would."""

from pathlib import Path
from typing import cast

import pytest
import yaml  # transformers depends on it

from blockdraft.launch import (
    ENGINES,
    LaunchDrafter,
    LaunchOrder,
    LaunchPlan,
    LaunchTarget,
    PairForLaunch,
)

FOLDER = Path(__file__).parents[3] / "deploy" / "scaling"
Node = dict[str, object]


def documents(name: str) -> list[Node]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [cast(Node, document) for document in yaml.safe_load_all(text)]


def below(node: Node, *path: str) -> Node:
    for key in path:
        node = cast(Node, node[key])
    return node


def container(pod: Node) -> Node:
    (only,) = cast(list[Node], below(pod, "spec")["containers"])
    return only


def words(node: Node) -> tuple[str, ...]:
    """What the container runs; every word a string, as Kubernetes insists."""
    found = [*cast(list[str], node["command"]), *cast(list[str], node.get("args", []))]
    assert all(isinstance(word, str) for word in found)
    return tuple(found)


def plan(engine: str, *extra: str, ranks: int, max_model_len: int | None) -> LaunchPlan:
    pair = PairForLaunch(
        target=LaunchTarget(where="/models/target", layout="hf", num_heads=32),
        drafter=LaunchDrafter(where="/models/drafter", layout="hf", block_size=16, num_heads=32),
    )
    return ENGINES[engine].make_plan(
        LaunchOrder(
            pair=pair,
            device="cuda",
            host="0.0.0.0",
            tensor_parallel=ranks,
            dtype="bfloat16",
            max_model_len=max_model_len,
            extra=extra,
        )
    )


def test_vllm_on_kubernetes() -> None:
    claim, deployment, service = documents("vllm-kubernetes.yaml")
    pod = below(deployment, "spec", "template")
    assert words(container(pod)) == plan("vllm", ranks=2, max_model_len=16384).command
    assert below(container(pod), "resources", "limits") == {"nvidia.com/gpu": 2}
    assert below(claim, "metadata")["name"] == "pair-models"
    labels = below(pod, "metadata", "labels")
    assert below(service, "spec", "selector") == labels
    assert below(deployment, "spec", "selector", "matchLabels") == labels


def test_vllm_on_ray() -> None:
    group, service = documents("vllm-ray.yaml")
    template = below(group, "spec", "leaderWorkerTemplate")
    leader = below(template, "leaderTemplate")
    expected = plan(
        "vllm", "--distributed-executor-backend", "ray", ranks=16, max_model_len=None
    ).command
    shell, minus_c, script, *command = words(container(leader))
    assert (shell, minus_c) == ("sh", "-c") and script.rstrip().endswith('exec "$0" "$@"')
    assert tuple(command) == expected
    worker = container(below(template, "workerTemplate"))
    assert "ray start --address" in words(worker)[2]
    gpus = below(worker, "resources", "limits")["nvidia.com/gpu"]
    assert cast(int, gpus) * cast(int, template["size"]) == 16
    assert below(service, "spec", "selector") == below(leader, "metadata", "labels")


def test_sglang_over_nodes() -> None:
    group, service = documents("sglang-multinode.yaml")
    template = below(group, "spec", "leaderWorkerTemplate")
    leader, worker = below(template, "leaderTemplate"), below(template, "workerTemplate")
    nodes = ("--nnodes", "$(LWS_GROUP_SIZE)", "--node-rank", "$(LWS_WORKER_INDEX)")
    expected = plan(
        "sglang",
        *("--mem-fraction-static", "0.75"),
        *(*nodes, "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"),
        ranks=16,
        max_model_len=None,
    ).command
    assert words(container(leader)) == words(container(worker)) == expected
    assert below(service, "spec", "selector") == below(leader, "metadata", "labels")


def test_trtllm() -> None:
    config, deployment, service = documents("trtllm-kubernetes.yaml")
    pod = below(deployment, "spec", "template")
    expected = plan("trtllm", ranks=2, max_model_len=16384)
    (file,) = expected.files
    mounted = {file.name: f"/config/{file.name}"}
    assert words(container(pod)) == tuple(mounted.get(word, word) for word in expected.command)
    assert below(config, "data") == {file.name: file.text}
    assert yaml.safe_load(file.text)["speculative_config"]["max_draft_len"] == 15
    assert below(service, "spec", "selector") == below(pod, "metadata", "labels")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_probes_ask_the_engines_own_health(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "startupProbe" in text and "httpGet: {path: /health, port: http}" in text

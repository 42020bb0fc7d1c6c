"""BERT's siblings: RoBERTa and its kin."""

import pytest

from diffenergy.workload.models.families.bert import Bert

from .builders import of_config
from .published import of


@pytest.mark.parametrize(
    "kind, vocab, parameters",
    [
        ("xlm-roberta", 250_002, 278_043_648), ("roberta", 50_265, 124_645_632),
        ("camembert", 32_005, 110_621_952),
    ],
)  # fmt: skip
def test_roberta_is_a_bert_with_unused_positions(kind, vocab, parameters):
    """Base models of the hub, as Transformers counts them (with the pooler); 514 rows
    of positions serve 512 tokens, and the kernels are BERT's."""
    values = of(h=768, layers=12, heads=12, inner=3072, vocab=vocab, positions=514,
                type_vocab_size=1, pad_token_id=1)  # fmt: skip
    model, bert = (of_config(values | {"model_type": x}, Bert) for x in (kind, "bert"))
    assert (model.parameters(), model.max_positions) == (parameters, 512)
    rows, same = (x.listings(batch=2, input_len=64) for x in (model, bert))
    assert rows[0].kernels == same[0].kernels

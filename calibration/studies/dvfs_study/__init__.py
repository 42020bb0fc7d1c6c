"""The kernel-level DVFS study of an RTX 3080 Ti (arXiv 2601.08539), fitted and scored.

`campaigns` reads it, `passes` adds its sweep of whole passes, `fitted` fits the law,
`scores` compares with what was published; `shapes` moves the kernels to other batch
sizes and tensor-parallel degrees, `transfer` compares there.
"""

"""Set-up of all tests."""

import genelab  # noqa: F401  before torch, so that torch's threads sleep while they wait

"""How to choose an alignment: one engine over blueprints, nothing that knows an architecture."""

# Each registers its start or its matcher.
import fusionlab.matching.matchers.permutations
import fusionlab.matching.matchers.weights
import fusionlab.matching.starts.activations
import fusionlab.matching.starts.annealed
import fusionlab.matching.starts.as_is
import fusionlab.matching.starts.known  # noqa: F401

"""How to choose an alignment: one engine over blueprints, nothing that knows an architecture."""

"""``python -m fusionlab``: the same as the ``fusionlab`` command."""

import sys

from fusionlab.cli import main

sys.exit(main())

"""``python -m trmodel`` is the command ``trmodel``."""

import sys

from trmodel.cli.main import main

sys.exit(main())

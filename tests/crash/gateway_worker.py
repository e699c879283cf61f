"""A worker of the daemon that is killed: `python -m tests.crash.gateway_worker SOCKET`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nacre.runtime.worker import main
from nacre.web.api.openai_requests import make_handlers
from tests.crash.gateway_daemon import MARK, WORKER_DEATH, Death, Steps, arm

if __name__ == "__main__":
    # In each life of the daemon the first worker that comes to this step ends there.
    is_over = Path(MARK).exists()
    death = Death() if is_over else Death(**json.loads(os.environ[WORKER_DEATH]))
    arm(Steps(death, whose="worker killed", once=MARK))
    main(make_handlers())

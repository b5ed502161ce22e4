"""No test reads what an earlier run, or the user, left in the cache folder."""

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="s2s-tests-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["S2S_CACHE_DIR"] = _folder
os.environ.pop("S2S_CACHE", None)

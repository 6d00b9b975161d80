# Runs as root in a layer on top of `base`.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# The packages of Debian, while those of Python are installed.
{
  apt-get -qq update
  grep -v '^#' /usr/local/share/sandcove/packages.txt | xargs apt-get -qq --yes --no-install-recommends install
  apt-get clean
  rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/*.log
} &
debian=$!

# Wheels only: nothing is compiled here, and no package's own build script runs.
pip install --quiet --progress-bar off --root-user-action ignore --disable-pip-version-check --no-cache-dir \
  --no-compile --only-binary :all: \
  --requirement /usr/local/share/sandcove/requirements.txt --constraint /usr/local/share/sandcove/constraints.txt
# Tests of packages are a third of it, and nobody imports them.
python3 -m compileall -q -j 0 -x '/tests?/' /usr/local/lib/python3.13/dist-packages || true
wait "$debian"

# What JavaScript and TypeScript cells are translated with.
npm install --global --silent --no-audit --no-fund sucrase@3.35.1 acorn@8.19.0
rm -rf /root/.npm

# The list of fonts takes a second to make, so it is made once. Code runs as root, commands as `user`.
cat >/usr/local/share/sandcove/fonts.py <<'PYTHON'
import matplotlib.font_manager
print("matplotlib knows", len(matplotlib.font_manager.fontManager.ttflist), "fonts")
PYTHON
HOME=/root python3 /usr/local/share/sandcove/fonts.py
sudo -u user HOME=/home/user python3 /usr/local/share/sandcove/fonts.py
rm /usr/local/share/sandcove/fonts.py

mkdir -p /usr/local/lib/node_modules
find /usr/local -xdev -type d ! -perm 0777 -exec chmod 0777 {} +

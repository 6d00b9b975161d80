# Runs as root in a layer on top of `code-interpreter`.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt-get -qq update
grep -v '^#' /usr/local/share/sandcove/languages.txt | xargs apt-get -qq --yes --no-install-recommends install
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/*.log

# The Java kernel comes as a wheel: two jar files and a kernel.json, no Python. pip checks what it downloads.
pip install --quiet --progress-bar off --no-cache-dir --no-deps --only-binary :all: \
  --require-hashes --requirement /usr/local/share/sandcove/kernels.txt

find /usr/local -xdev -type d ! -perm 0777 -exec chmod 0777 {} +
# A kernel that does not say so is found out here and not by whoever asks for its language.
test -s /usr/share/jupyter/kernels/ir/kernel.json
test -s /usr/local/share/jupyter/kernels/java/kernel.json
ruby -rjson -e 'exit'

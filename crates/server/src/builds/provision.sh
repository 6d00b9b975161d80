# Installs the programs that clients rely on and the image lacks. Packages are named as the distribution names them.
missing=
need() {
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
as_named() {
    need bash bash
    need sudo sudo
    need curl curl
    need git git
    need ss "$1"
    need pgrep "$2"
    need useradd "$3"
    need ping "$4"
    need jq jq
    need less less
    need socat socat
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || missing="$missing ca-certificates"
}
if command -v apt-get >/dev/null 2>&1; then
    as_named iproute2 procps passwd iputils-ping
    [ -z "$missing" ] && exit 0
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
    apt-get update -q && apt-get install -q -y --no-install-recommends $missing
    status=$?
    apt-get clean
    rm -rf /var/lib/apt/lists/*
    exit $status
elif command -v apk >/dev/null 2>&1; then
    as_named iproute2 procps shadow iputils
    [ -z "$missing" ] || { echo "installing:$missing" && apk add --no-cache $missing; }
elif command -v dnf >/dev/null 2>&1; then
    as_named iproute procps-ng shadow-utils iputils
    [ -z "$missing" ] || { echo "installing:$missing" && dnf install -y --setopt=install_weak_deps=False $missing && dnf clean all; }
elif command -v microdnf >/dev/null 2>&1; then
    as_named iproute procps-ng shadow-utils iputils
    [ -z "$missing" ] || { echo "installing:$missing" && microdnf install -y $missing && microdnf clean all; }
elif command -v pacman >/dev/null 2>&1; then
    as_named iproute2 procps-ng shadow iputils
    [ -z "$missing" ] || { echo "installing:$missing" && pacman -Sy --noconfirm --needed $missing; }
elif command -v zypper >/dev/null 2>&1; then
    as_named iproute2 procps shadow iputils
    [ -z "$missing" ] || { echo "installing:$missing" && zypper --non-interactive install --no-recommends $missing; }
else
    echo "no known package manager: the image is used as it is"
fi

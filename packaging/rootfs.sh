# Sourced by what runs in the matrix' rootfs of Debian (scripts/matrix makes it; $BFTRAINER_MATRIX_CACHE), of
# the suite $SUITE.
# The rootfs is not changed: all is written into overlays. Layers with more packages of Debian's, and what
# pip fetched, are kept in .cache/packages for the next run; $scratch goes with this one. Root only.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${SUITE:-trixie}
root=${BFTRAINER_MATRIX_CACHE:-$repo/.cache/matrix}/$suite
kept=$repo/.cache/packages/$suite
die() { echo "${0#"$repo"/}: $*" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "needs root: it mounts, and changes its root folder"
[ -e "$root.complete" ] || "$repo/scripts/matrix" --suite $suite --rootfs
exec 9> "$root.lock"
flock 9 # the matrix writes into it while its tests run
mkdir -p "$kept/out"
scratch=$(mktemp -d "$kept/run.XXXXXX") # beside the layers: an overlay's work folder is on their disk
trap 'rm -rf "$scratch"' EXIT

# over LAYERS UPPER COMMAND...: runs it here, with the rootfs below these layers in $merged, and what is
# written there in UPPER.
over() {
    local layers=$1 upper=$2
    shift 2
    mkdir -p "$upper" "$scratch/work" "$scratch/root"
    unshare --mount --pid --fork --kill-child --propagation private env merged="$scratch/root" bash -euc '
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=${merged%/*}/work" "$merged"
        shift 2
        status=0 # no exec: bash also buries the orphans
        "$@" || status=$?
        exit $status
    ' over "$layers" "$upper" "$@"
}

# inside LAYERS UPPER COMMAND...: runs it in that rootfs.
inside() {
    local layers=$1 upper=$2
    shift 2
    over "$layers" "$upper" bash -euc '
        repo=$1 kept=$2; shift 2
        mount -t proc proc "$merged/proc"
        for path in /dev /sys "$repo" /etc/resolv.conf /etc/hosts /etc/ssl/certs \
            /usr/share/ca-certificates /usr/local/share/ca-certificates; do
            [ -e "$path" ] || continue
            if [ -d "$path" ]; then mkdir -p "$merged$path"
            else mkdir -p "$merged${path%/*}"; touch "$merged$path"; fi
            mount --rbind "$path" "$merged$path"
        done
        mkdir -p "$kept/pip" "$merged/root/.cache/pip" "$merged/tmp/packages"
        mount --bind "$kept/pip" "$merged/root/.cache/pip"
        mount --bind "$kept/out" "$merged/tmp/packages"
        printf "#!/bin/sh\nexit 101\n" > "$merged/usr/sbin/policy-rc.d"
        chmod +x "$merged/usr/sbin/policy-rc.d"
        chroot "$merged" env HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
    ' inside "$repo" "$kept" "$@"
}

# layer NAME PACKAGE...: makes, where it is not there yet, the layer $kept/NAME with these packages.
layer() {
    local name=$1
    shift
    [ "$(cat "$kept/$name.complete" 2> /dev/null)" != "$*" ] || return 0
    rm -rf "${kept:?}/$name"
    inside "$root" "$kept/$name" sh -euc 'apt-get -qq update
        apt-get -qq install -y --no-install-recommends "$@"' sh "$@" > "$kept/$name.log" 2>&1 \
        || { tail -5 "$kept/$name.log" >&2; die "apt-get failed; see $kept/$name.log"; }
    echo "$*" > "$kept/$name.complete"
}

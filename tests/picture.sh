#!/usr/bin/env bash
# Draws docs/picture.svg from a real run: two terminals, web-1 and web-2, with one Redis. Needs root, or user namespaces.
#
#     tests/picture.sh target/release/redlock docs/picture.svg
set -eu
program=$(realpath "$1") picture=$(realpath -m "$2")
# A network with an address for the server, and a host name for each terminal.
if [ -z "${INSIDE-}" ]; then
    exec env -i INSIDE=1 PATH="$PATH" LANG=C.UTF-8 unshare --map-root-user --net --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
ln -s "$program" redlock
export PATH=$directory:$PATH REDLOCK_REDIS=redis://10.0.0.1 HOME=$directory
ip link set lo up
ip address add 10.0.0.1/32 dev lo
redis-server --bind 10.0.0.1 --protected-mode no --save '' > redis.log &
until redis-cli -h 10.0.0.1 ping > /dev/null 2>&1; do sleep 0.1; done
cat > backup << 'END'
#!/bin/sh
for part in etc home srv; do echo "copying /$part"; sleep "$PAUSE"; done
echo done
END
chmod +x backup

# Each line of the screens: the moment (ms), the host, the text.
screen() { while IFS= read -r line; do printf '%s\t%s\t%s\n' $((${EPOCHREALTIME//[!0-9]/} / 1000)) "$1" "$line"; done >> lines; }
on() { unshare --uts sh -c 'echo "$0" > /proc/sys/kernel/hostname; exec $1 2>&1' "$@"; }
types() {
    echo "\$ $2" | screen "$1"
    on "$1" "$2"
}
shows() { until grep -q "$1.*$2" lines; do sleep 0.05; done; }

export PAUSE=2
{ types web-1 'redlock run backup --ttl 3s -- ./backup' || echo Killed; } 2> /dev/null | screen web-1 &
shows web-1 'copying /etc'
sleep 0.5
PAUSE=0.6 types web-2 'redlock run backup --wait 10m -- ./backup' | screen web-2 &
second=$!
shows web-1 'copying /home'
kill -9 "$(pgrep -xo redlock)"
sleep 0.3
echo '$ pgrep -a backup || echo nothing of the job is left' | screen web-1
{ ! pgrep -ax backup || exit; echo 'nothing of the job is left'; } | screen web-1
wait $second
sleep 0.3
echo '$ redlock log backup --format chart --since 15s' | screen web-2
script -qec 'stty cols 60; NO_COLOR=1 redlock log backup --format chart --since 15s' /dev/null < /dev/null | tr -d '\r' | screen web-2
redis-cli -h 10.0.0.1 shutdown || :

# Both screens have one time axis: what happens later stands lower.
awk -F '\t' -v columns=60 '
function escaped(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }
# In columns; mawk counts bytes.
function width_of(text) { gsub(/[\200-\277]/, "", text); return length(text) }
function draw(side, text, kind) {
    if (text ~ /[^ ]/)
        body = body sprintf("<text x=\"%g\" y=\"%g\" class=\"%s\" textLength=\"%g\">%s</text>\n", \
            20 + side * (columns * 8 + 56), 64 + row * 19, kind, width_of(text) * 8, escaped(text))
    row++
    if (row > rows) rows = row
}
{
    side = $2 == "web-2"
    # What comes at nearly the same moment on the other screen stands beside it.
    if (side != last_side && $1 - moment < 120 && last_side != "") row = first
    if (side != last_side) first = row
    last_side = side; moment = $1
    kind = $3 ~ /^\$/ ? "typed" : $3 ~ /^Killed|✗/ ? "bad" : $3 ~ /^redlock: / ? "said" : "job"
    for (text = $3; width_of(text) > columns; text = "  " substr(text, at + 1)) {
        for (at = columns; at > columns / 2 && substr(text, at, 1) != " "; at--);
        draw(side, substr(text, 1, at - 1), kind)
    }
    draw(side, text, kind)
}
END {
    width = columns * 8 + 40
    height = 56 + rows * 19 + 20
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"13\" xml:space=\"preserve\">\n", 2 * width + 16, height
    print "<style>.typed{fill:#fff;font-weight:bold}.said{fill:#7ee787}.job{fill:#c9d1d9}.bad{fill:#ff7b72}.host{fill:#9aa4af}</style>"
    for (side = 0; side < 2; side++) {
        x = side * (width + 16)
        printf "<rect x=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", x, width, height
        split("#ff5f56 #ffbd2e #27c93f", colour, " ")
        for (dot = 1; dot <= 3; dot++) printf "<circle cx=\"%d\" cy=\"20\" r=\"6\" fill=\"%s\"/>\n", x + dot * 20, colour[dot]
        printf "<text x=\"%d\" y=\"25\" class=\"host\">web-%d</text>\n", x + width / 2 - 20, side + 1
    }
    printf "%s</svg>\n", body
}' <(sort -s -n lines) > "$picture"

#!/bin/sh
# Publishes and gets messages with the tools of librabbitmq: `publish EXCHANGE KEY` or `get QUEUE`.
# They show nothing but the body.
set -eu
mode=$1
shift
case $mode in
publish)
    printf '\000\377\376 gr\303\274n\n' | amqp-publish --url="$AMQP_URL" --exchange="$1" --routing-key="$2" --persistent \
        --content-type=application/x-grün --content-encoding=identity --reply-to='the reply queue' \
        --header='text: grün 緑' --header='empty: ' --header='number: 7'
    ;;
get)
    body=$(amqp-get --url="$AMQP_URL" --queue="$1" | od -A n -t x1 | tr -d ' \n')
    printf '{"properties": {}, "headers": {}, "body": "%s"}\n' "$body"
    ;;
esac

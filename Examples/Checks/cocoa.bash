# The examples for CocoaAsyncSocket without TLS. The examples with TLS are in cocoa-tls.bash and mail.bash.
counterparts=$PWD/Examples/CocoaAsyncSocket/Counterparts

check_cocoa_chat_server() {
    local port
    begin chat "$programs/cocoa-chat-server" 0
    expect chat 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin alice nc -C 127.0.0.1 "$port"
    expect alice 'your name'
    say alice alice
    expect alice 'welcome, alice'
    begin bob "$programs/cocoa-chat-client" localhost "$port" bob
    say bob 'hello, alice'  # perhaps before the connection is established
    expect bob 'connected to 127.0.0.1'
    expect bob 'welcome, bob'
    expect alice 'bob joined'
    expect alice '^bob: hello, alice'
    say alice 'hello, bob'
    expect bob '^alice: hello, bob'
    say alice /who
    expect alice '^\*\*\* alice, bob'
    begin other nc -C 127.0.0.1 "$port"
    say other alice
    expect other 'not this name'
    say other "$(printf 'x%.0s' {1..600})"
    expect chat 'a stranger sent a line that is too long'
    say bob /quit
    expect bob 'goodbye'
    expect bob 'the server closed the connection'
    ended bob 0
    expect alice 'bob left'
    kill -TERM "${pid[chat]}"
    expect alice 'the server is shutting down'
    expect chat 'done'
    ended chat 0
    stop alice other
    begin sleepy "$programs/cocoa-chat-server" 0 0.5
    expect sleepy 'listening on port ([0-9]+)'
    begin alice nc -C 127.0.0.1 "${BASH_REMATCH[1]}"
    say alice alice
    expect alice 'welcome, alice'
    expect alice 'are you still there'
    expect sleepy 'alice fell asleep'
    stop alice sleepy
}

# The client with a different server and without a server.
check_cocoa_chat_client() {
    local port
    begin server socat -d -d TCP-LISTEN:0,bind=127.0.0.1,crlf -
    expect server 'listening on .*127.0.0.1:([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin carol "$programs/cocoa-chat-client" 127.0.0.1 "$port" carol
    expect server '^carol'
    say server 'hello, carol'
    expect carol '^hello, carol'
    stop server
    expect carol 'the server closed the connection'
    ended carol 0
    printed 1 refused "$programs/cocoa-chat-client" 127.0.0.1 "$port" carol </dev/null
    contains refused '^failed: Connection refused (POSIX error, 111)'
    printed 1 unknown "$programs/cocoa-chat-client" no-such-host.invalid "$port" carol </dev/null
    contains unknown '^failed: .*(kCFStreamErrorDomainNetDB, '
    printed 1 nameless "$programs/cocoa-chat-client" '' "$port" carol </dev/null
    contains nameless '^failed: .*(GCDAsyncSocketErrorDomain, 2)'
}

check_cocoa_messenger() {
    local port
    port=$(free_port)
    begin server python3 "$counterparts/messenger_server.py" "$port"
    expect server listening
    begin alice "$programs/cocoa-messenger" 127.0.0.1 "$port" alice 0.5
    expect alice 'logged in'
    begin bob "$programs/cocoa-messenger" localhost "$port" bob 0.5
    expect bob 'logged in'
    say alice 'bob hello, ünïcode'
    expect bob '^alice: hello, ünïcode'
    expect alice 'message 1 arrived'
    head -c 3M /dev/urandom >"$scratch/picture"
    say bob "alice <$scratch/picture"
    expect alice '^bob sent a file of 3145728 bytes'
    expect bob 'message 1 arrived'
    # Messages written while no server is running are queued and arrive in order.
    kill -KILL "${pid[server]}"
    expect alice '^disconnected: .*(GCDAsyncSocketErrorDomain 7|POSIXErrorDomain 104)'
    stop server
    say alice 'bob first'
    expect alice 'message 2 waits'
    say alice 'bob second'
    expect alice 'message 3 waits'
    expect alice '^disconnected: Connection refused'
    begin server python3 "$counterparts/messenger_server.py" "$port"
    expect bob '^alice: first'
    expect bob '^alice: second'
    expect alice 'message 3 arrived'
    # The server hangs, which only the heartbeat can detect.
    kill -STOP "${pid[server]}"
    expect bob 'the server does not answer'
    kill -CONT "${pid[server]}"
    expect bob 'logged in'
    say bob 'alice good night'
    expect alice '^bob: good night'
    # At the end of its input, the program waits for the receipts before it exits.
    printed 0 carol "$programs/cocoa-messenger" 127.0.0.1 "$port" carol 0.5 <<<'alice bye'
    expect alice '^carol: bye'
    expect server 'carol said bye'
    stop alice bob server
}

# When a server violates the protocol, the client disconnects and reconnects.
check_cocoa_messenger_faults() {
    local port fault sign
    while read -r fault sign; do
        port=$(free_port)
        begin server python3 "$counterparts/messenger_server.py" "$port" "$fault"
        expect server listening
        begin client "$programs/cocoa-messenger" 127.0.0.1 "$port" alice
        expect client "$sign"
        expect client 'logged in'
        stop client server
    done <<'END'
bad-header the server sent a bad header
huge-body the server sent a bad header
long-header ^disconnected: .*(GCDAsyncSocketErrorDomain 6)
END
}

check_cocoa_discovery() {
    local port group=239.255.42.99
    port=$(free_port)
    printed 1 alone "$programs/cocoa-discovery" browse "$group" "$port" 127.0.0.1 0.5
    contains alone '^nothing found'
    begin announcer "$programs/cocoa-discovery" announce "$group" "$port" 127.0.0.1 files 2049
    expect announcer "announcing files on port $port"
    printed 0 asked python3 "$counterparts/discovery.py" browse "$group" "$port"
    contains asked '"port": *2049'
    expect announcer 'asked by 127.0.0.1:[0-9]+'
    expect announcer 'answer 1 sent'
    begin other python3 "$counterparts/discovery.py" announce "$group" "$port"
    expect other listening
    printed 0 found "$programs/cocoa-discovery" browse "$group" "$port" 127.0.0.1 2
    contains found '^printer: 127.0.0.1, port 631'
    contains found '^scanner: 127.0.0.1, port 9100'
    contains found '^files: 127.0.0.1, port 2049'
    contains found '^found 3'
    stop other announcer
    printed 1 nowhere "$programs/cocoa-discovery" announce "$group" "$port" no-such-interface files 1
    contains nowhere '^failed: .*(GCDAsyncUdpSocketErrorDomain 2)'
    printed 1 unicast "$programs/cocoa-discovery" announce 127.0.0.1 "$port" 127.0.0.1 files 1
    contains unicast '^failed: '
}

check_cocoa_metered_echo() {
    local port
    begin echo "$programs/cocoa-metered-echo" 0 20
    expect echo 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    begin first nc 127.0.0.1 "$port"
    expect echo '^no name, 2 sockets'
    say first hello
    expect first '^hello'
    say first bye
    expect first '^bye'
    expect echo '^leaving after 2 reads, 10 bytes to write'
    expect echo '^client 1 left: 2 reads, 10 bytes to write, error nil'
    begin second socat - "TCP:127.0.0.1:$port"
    expect echo '^no name, 3 sockets'
    say second 'a line that is longer than 20 bytes'
    expect echo '^client 1 left: 1 reads, 0 bytes to write, error 6'
    stop first second echo
}

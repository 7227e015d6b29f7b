#!/usr/bin/env escript
%% Echo server and client in Erlang, whose machine has functions of libc's names of its own (sigaction, read ...).
%%   echo.escript serve              prints `listening on PORT`, and ends at the end of its standard input
%%   echo.escript ask PORT NUMBER    so many connections at once; every byte is compared; ends with a line of JSON
-mode(compile).

-define(ROUND_TRIPS, 200).
-define(STREAM, 1000000).

main(["serve"]) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 64}]),
    {ok, Port} = inet:port(Listener),
    io:format("listening on ~b~n", [Port]),
    spawn_link(fun() -> accept(Listener) end),
    io:get_line("");
main(["ask", Port, Number]) ->
    N = list_to_integer(Number),
    Self = self(),
    Ask = fun(I) -> spawn_link(fun() -> Self ! {done, ask(list_to_integer(Port), I)} end) end,
    lists:foreach(Ask, lists:seq(1, N)),
    Bytes = lists:sum([receive {done, B} -> B end || _ <- lists:seq(1, N)]),
    io:format("{\"connections\": ~b, \"bytes\": ~b}~n", [N, Bytes]).

%% Every other connection is read by messages of the machine, the others by calls.
accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Active = get(turn) =:= true,
    put(turn, not Active),
    Pid = spawn(fun() -> receive go -> echo(Socket, Active) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).

echo(Socket, Active) ->
    ok = inet:setopts(Socket, [{exit_on_close, false}]),
    case next(Socket, Active) of
        {ok, Data} -> ok = gen_tcp:send(Socket, Data), echo(Socket, Active);
        {error, closed} -> gen_tcp:close(Socket)
    end.

next(Socket, false) -> gen_tcp:recv(Socket, 0);
next(Socket, true) ->
    ok = inet:setopts(Socket, [{active, once}]),
    receive {tcp, Socket, Data} -> {ok, Data}; {tcp_closed, Socket} -> {error, closed} end.

ask(Port, Seed) ->
    rand:seed(exsss, Seed),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    Sizes = [rand:uniform(3000) || _ <- lists:seq(1, ?ROUND_TRIPS)],
    lists:foreach(fun(Size) -> round_trip(Socket, rand:bytes(Size)) end, Sizes),
    Stream = rand:bytes(?STREAM),
    Sender = self(),
    spawn_link(fun() -> ok = gen_tcp:send(Socket, Stream), ok = gen_tcp:shutdown(Socket, write), Sender ! sent end),
    {ok, Stream} = gen_tcp:recv(Socket, ?STREAM),
    {error, closed} = gen_tcp:recv(Socket, 0),
    receive sent -> ok end,
    gen_tcp:close(Socket),
    lists:sum(Sizes) + ?STREAM.

round_trip(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    {ok, Data} = gen_tcp:recv(Socket, byte_size(Data)).

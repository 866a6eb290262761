from sru_server import main

main()

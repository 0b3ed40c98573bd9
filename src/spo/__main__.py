from spo.cli import main

main()
